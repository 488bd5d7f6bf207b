"""Options that come as text or from TOML files: types, dotted names, and errors that name what was probably meant."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from .errors import InputError

MAX_INTEGER = 2**63 - 1  # largest value of any option
SHOWN = 60  # characters of a value in an error


def convert(name: str, value: Any, hint: Any) -> Any:
    """A value of a TOML file with the type of an option: lists become tuples, and integers floats.

    Args:
        name: name of the option, for the error.
        value: what TOML or JSON gives.
        hint: type hint: `bool`, `int`, `float`, `str`, a tuple of these, a `Literal`, or one of them or `None`.
    """
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        if value not in arguments:
            raise InputError(f"{name} must be one of {', '.join(arguments)}, got {shown(value)}")
        return value
    if get_origin(hint) is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        if ... not in arguments and len(items) != len(arguments):
            raise InputError(f"{name} must have {len(arguments)} values, got {shown(value)}")
        return tuple(convert(name, item, arguments[0]) for item in items)
    if type(None) in arguments:  # an optional value
        return None if value is None else convert(name, value, arguments[0])
    if isinstance(value, bool) != (hint is bool) or not isinstance(value, (int, float) if hint is float else hint):
        raise InputError(f"{name} must be of type {hint.__name__}, got {shown(value)}")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise InputError(f"{name} must be at most {MAX_INTEGER:,}, got {shown(value)}")
    if isinstance(value, str) and "\0" in value:
        raise InputError(f"{name} must not hold the character NUL, got {shown(value)}")
    return float(value) if hint is float else value


def flatten(options: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """Nested tables → one table with dotted names: `{"global": {"eta": 0}}` → `{"global.eta": 0}`."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, prefix=f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def nest(options: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names → nested tables, the inverse of `flatten`."""
    nested: dict[str, Any] = {}
    for name, value in options.items():
        *tables, last = name.split(".")
        place = nested
        for table in tables:
            place = place.setdefault(table, {})
        place[last] = value
    return nested


def nearest(name: str, known: Iterable[str]) -> str:
    """What an error adds about an unknown name: the three names nearest to it, or all if none is near."""
    names = sorted(known)
    leaf = name.rpartition(".")[2]
    near = difflib.get_close_matches(name, names, 3, 0.75)
    near += [other for other in names if other.rpartition(".")[2] == leaf and other not in near]
    if near:
        return f"the nearest are {', '.join(near[:3])}"
    return f"there are {', '.join(names)}" if names else "there are none"


def shown(value: Any) -> str:
    """A value in an error message, cut short if it is long."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        text = "a huge number"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
