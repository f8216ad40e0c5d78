"""Where the files are that are not Python: formulas, templates, the grammar.

In: a name as it stands in the source tree, such as "derivatives.yaml", "templates" or
"formula.lark". Out: its path, in a checkout and in an installed wheel alike.
"""

from __future__ import annotations

from pathlib import Path

from fuser.errors import nearest

_PACKAGE = Path(__file__).resolve().parent
_SHIPPED = _PACKAGE / "_data"


def search_path() -> tuple[Path, ...]:
    """The folders that are searched, in order.

    The package itself comes first. Files from the top of the source tree travel in a
    wheel under `fuser/_data`; where that is not, this is a checkout (or an editable
    install of one) and they stand beside the package.
    """
    return _PACKAGE, _SHIPPED if _SHIPPED.is_dir() else _PACKAGE.parent


def resource(name: str) -> Path:
    """The path of the file or folder `name`, with "/" between the parts.

    Raises FileNotFoundError, which says where it looked and what is there by a similar
    name.
    """
    for folder in search_path():
        path = folder / name
        if path.exists():
            return path
    raise FileNotFoundError(_not_found(name))


def _not_found(name: str) -> str:
    parent = Path(name).parent
    lines = [f'error: there is no file or folder "{name}"']
    siblings: list[str] = []
    for place in search_path():
        lines.append(f"  looked in {place}")
        if (place / parent).is_dir():
            siblings += [path.name for path in (place / parent).iterdir()]
    similar = nearest(Path(name).name, siblings)
    if similar is not None:
        lines.append(f'  did you mean "{(parent / similar).as_posix()}"?')
    return "\n".join(lines)
