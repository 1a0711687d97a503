"""Writes the table of files in architecture.md: each file with the first line of its docstring.

Run `python docs/file_table.py` after you add, move or rename a file.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "keras_transformer"
PAGE = ROOT / "docs/architecture.md"
BEGIN, END = "<!-- table of files: python docs/file_table.py -->\n", "<!-- end of the table -->\n"
# The data's order; "" holds the files beside the folders.
FOLDERS = ("", "data", "layers", "models", "training", "decoding", "inference", "export")
FOLDERS += ("forecasting", "evaluation", "visualization", "apache_beam", "commands")


def reading_order() -> dict[str, list[str]]:
    """The names of each folder's files in the order of `ORDER` in `tests/test_structure.py`."""
    tree = ast.parse((ROOT / "tests/test_structure.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "ORDER":
            return ast.literal_eval(node.value)
    raise ValueError("tests/test_structure.py has no ORDER, the reading order of each folder.")


def files() -> list[Path]:
    """All files of the package in reading order, but for `__init__.py`."""
    order = reading_order()

    def place(path):
        *folders, name = path.relative_to(PACKAGE).with_suffix("").parts
        folder, name = (folders[0], ".".join([*folders[1:], name])) if folders else ("", name)
        names = order.get(folder, [])
        known = names.index(name) if name in names else len(names)
        return FOLDERS.index(folder), known, name

    found = (path for path in PACKAGE.rglob("*.py") if path.stem != "__init__")
    return sorted(found, key=place)


def table() -> str:
    """The table, in Markdown."""
    lines = ["| file | what it is |", "|---|---|"]
    for path in files():
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        if not docstring:
            raise ValueError(f"{path} has no docstring; give it one line that says what it is.")
        lines.append(f"| `{path.relative_to(PACKAGE).as_posix()}` | {docstring.splitlines()[0]} |")
    return "\n".join(lines) + "\n"


def updated(page: str) -> str:
    """A page with the table between its two markers replaced by the present one."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
