"""What the process does with memory that it frees."""

import ctypes
import platform

# Of mallopt(3).
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
NEVER = -1


def keep_freed_memory() -> bool:
    """Keeps memory that is freed, for the next tensors, instead of giving it back to the system.

    TensorFlow takes and frees the memory of every tensor in every step. The C library gives that of
    large tensors back at once, and the system has to clear each page anew when it is asked for the
    next: a third of the time of a training step, and half of it where the sentences are long.
    With this the process does not grow beyond its peak, but stays there.

    Call it before TensorFlow is imported, since the threads that exist keep their own pools. The
    commands of `keras-transformer` do so. For a process that is not yours, such as TensorFlow
    Serving, these variables of its environment are the same: `MALLOC_ARENA_MAX=1`,
    `MALLOC_MMAP_MAX_=0`, `MALLOC_TRIM_THRESHOLD_=18446744073709551615`.

    Returns:
        Whether the C library could be told: only that of GNU (glibc) can.

    Example:
        >>> is_kept = keep_freed_memory()
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    tell = ctypes.CDLL(None).mallopt
    return all((tell(ARENA_MAX, 1), tell(MMAP_MAX, 0), tell(TRIM_THRESHOLD, NEVER)))
