"""Reads the command line; what is wrong with it is one line that says how to go on."""

import argparse
import os
import re
import sys
from difflib import get_close_matches

import keras_transformer
from keras_transformer.commands.options import (
    COMMANDS,
    GENERAL,
    ONE_OF,
    OPTIONS,
    TAKE_REST,
    Option,
)

PROGRAM = "keras-transformer"
# What argparse says, and how it is said here.
PLAIN = {
    r"argument COMMAND: .*": r"give a command",
    r"the following arguments are required: COMMAND": r"give a command",
    r"the following arguments are required: (.*)": r"\1 must be given",
    r"one of the arguments (.*) is required": r"give one of \1",
    r"argument (\S+): not allowed with argument (\S+)": r"\1 and \2 exclude each other",
    r"argument (\S+): expected one argument": r"\1 needs a value",
    r"argument (\S+): expected at least one argument": r"\1 needs a value",
    r"argument (\S+): ignored explicit argument '(.*)'": r"\1 takes no value, but got \2",
    r"unrecognized arguments: (.*)": r"\1 is one argument too many; quote what has spaces",
    r"argument (\S+): (.*)": r"\1 \2",
}
NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")  # no option, for argparse


class Parser(argparse.ArgumentParser):
    """A parser of one command, or of the line that names it."""

    def error(self, message):
        """Exits with status 2 and one line."""
        for pattern, plain in PLAIN.items():
            if re.fullmatch(pattern, message, re.DOTALL):
                message = re.sub(pattern, plain, message, count=1, flags=re.DOTALL)
                break
        message = " ".join(message.split())
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


class CommandLine(Parser):
    """The parser of the whole line. `typed` in what it returns holds the options that were typed.

    A command lists in `chosen` the options to which it gave a value that suits.

    It knows no abbreviations, and names the option or the command that was probably meant.
    """

    def parse_args(self, args=None, namespace=None):
        args = sys.argv[1:] if args is None else list(args)
        self._refuse_unknown(args)
        args, passed_on = _split_rest(args)
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            self._refuse_rest(options.command, rest)
        options.rest = passed_on
        known = _options(options.command)
        options.typed = frozenset(option.key for option in known if hasattr(options, option.key))
        options.chosen = []
        for option in known:
            if option.key not in options.typed:
                setattr(options, option.key, False if option.values is None else option.default)
        return options

    def _refuse_rest(self, command, rest):
        """Ends at words that no argument takes; a file probably lacks its option."""
        names = [option.name for option in _options(command) if option.values == "FILE"]
        if names and os.path.isfile(rest[0]):
            self.commands[command].error(
                f"{rest[0]} needs an option before it (did you mean {names[0]} {rest[0]}?)"
            )
        self.commands[command].error(f"unrecognized arguments: {' '.join(rest)}")

    def _refuse_unknown(self, args):
        """Ends at a word that is no command, or no option of its command."""
        command = next((word for word in args if not word.startswith("-")), None)
        if command is not None and command not in COMMANDS:
            self.error(f"there is no command {command!r}{meant(command, COMMANDS)}")
        place = args.index(command) if command is not None else len(args)
        _refuse_unknown_options(self, args[:place], ["--version"])
        if command is not None:
            names = [option.name for option in _options(command)]
            _refuse_unknown_options(self.commands[command], args[place + 1 :], names)


def _split_rest(args) -> tuple[list[str], list[str]]:
    """Splits the words of a command that passes some on at `--`."""
    command = next((word for word in args if not word.startswith("-")), None)
    place = args.index("--") if command in TAKE_REST and "--" in args else len(args)
    return args[:place], args[place + 1 :]


def _refuse_unknown_options(parser, words, names):
    names = ["--help", "-h", *(name for name in names if name.startswith("--"))]
    for word in words:
        if word == "--":
            return
        name = word.partition("=")[0]
        is_value = not name.startswith("-") or word == "-" or NUMBER.match(word) or " " in name
        if not is_value and name not in names:
            hint = meant(name, names) or _elsewhere(name)
            parser.error(f"there is no option {name}{hint}")


def _elsewhere(name) -> str:
    """Returns the commands that do have an option, or the empty string."""
    have = [command for command in OPTIONS if name in {o.name for o in _options(command)}]
    return f", which is one of {', '.join(have)}" if have else ""


def _options(command) -> list[Option]:
    known = (*OPTIONS[command], *GENERAL)
    return [option for option in known if isinstance(option, Option)]


def meant(word, names) -> str:
    """Returns the name that a misspelt word is most like, as a question, or the empty string."""
    found = get_close_matches(word, names, 1, 0.6) or [x for x in names if x.startswith(word)][:1]
    return f" (did you mean {found[0]}?)" if found else ""


def build_parser() -> CommandLine:
    """Builds the parser of the whole command line."""
    settings = {"allow_abbrev": False}
    parser = CommandLine(
        prog=PROGRAM, description="Transformers for Keras 3: from text to a server.", **settings
    )
    version = f"{PROGRAM} {keras_transformer.__version__}"
    parser.add_argument("--version", action="version", version=version, help="show the version")
    subparsers = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=Parser
    )
    parser.commands = {}
    for name, help_text in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=help_text, description=f"{help_text}.", **settings
        )
        if name in TAKE_REST:
            subparser.epilog = f"What follows -- is for others: [-- {TAKE_REST[name]} ...]"
        parser.commands[name] = group = subparser
        for option in (*OPTIONS[name], *GENERAL):
            if isinstance(option, str):
                group = subparser.add_argument_group(option)
            elif option not in ONE_OF.get(name, ()):
                _add(group if option not in GENERAL else subparser, option)
        if name in ONE_OF:
            which = subparser.add_mutually_exclusive_group(required=True)
            for option in ONE_OF[name]:
                _add(which, option)
    return parser


def _add(group, option):
    """Adds an option to a parser; its default is set later, to know what was typed."""
    settings = {"default": argparse.SUPPRESS, "help": option.help}
    if option.values is None:
        group.add_argument(option.name, action="store_true", **settings)
        return
    if option.default is not None:
        settings["help"] += f" ({option.default})"
    choices = option.values if isinstance(option.values, tuple) else None
    settings["metavar"] = f"{{{','.join(choices)}}}" if choices else option.values
    settings["type"] = option.reader
    if option.many:
        settings |= {"nargs": option.many, "action": "extend"}
    if option.name.startswith("-"):
        settings["required"] = option.required
    group.add_argument(option.name, **settings)
