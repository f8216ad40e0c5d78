"""Files that are not Python are found, and one that is not there is named."""

from __future__ import annotations

import pytest

from fuser.resources import resource, search_path


@pytest.mark.parametrize("name", ["derivatives.yaml", "formula.lark"])
def test_finds_files(name: str) -> None:
    assert resource(name).is_file()


def test_finds_folders() -> None:
    assert any(resource("templates").iterdir())


def test_missing_file_says_where_it_looked_and_what_is_near() -> None:
    with pytest.raises(FileNotFoundError) as error:
        resource("derivative.yaml")
    text = str(error.value)
    assert '"derivative.yaml"' in text
    assert all(str(place) in text for place in search_path())
    assert 'did you mean "derivatives.yaml"?' in text


def test_near_names_are_those_of_the_same_folder() -> None:
    template = min(path.name for path in resource("templates").iterdir())
    with pytest.raises(FileNotFoundError, match=f'did you mean "templates/{template}"'):
        resource(f"templates/{template}x")


def test_missing_folder_is_no_reason_for_another_error() -> None:
    with pytest.raises(FileNotFoundError, match='"nowhere/at/all"'):
        resource("nowhere/at/all")
