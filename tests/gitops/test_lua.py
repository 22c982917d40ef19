"""How a Lua is found, and what a script may say."""

import os
from pathlib import Path

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.gitops import Interpreter, LuaError, LuaNotFoundError, find_lua


def test_a_lua_that_is_named_but_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(LuaNotFoundError, match=r"LLMSERVICE_LUA is '.*nothing', which is not a program"):
        find_lua({"LLMSERVICE_LUA": str(tmp_path / "nothing")})


def test_a_lua_on_the_path_is_taken_before_anything_is_fetched(tmp_path: Path) -> None:
    for name in ("lua5.1", "lua5.4"):
        (tmp_path / name).touch(mode=0o755)
    assert find_lua({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "lua5.4"


def test_without_any_package_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # neither a Lua nor apt-get
    with pytest.raises(
        LuaNotFoundError, match=r"apt-get failed: .*Install Lua 5.1 or newer \(apt-get install lua5.4\)"
    ):
        find_lua({"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path)})
    assert not list(tmp_path.rglob("lua5.4/*"))


@pytest.mark.parametrize(
    "value",
    [
        {"a": 'quote " backslash \\ newline \n and é'},
        {"list": [1, 2.5, {"deep": [True, False]}]},
        {"key with space": "x"},
    ],
    ids=["text", "numbers", "keys"],
)
def test_an_object_comes_back_as_it_went(interpreter: Interpreter, tmp_path: Path, value: Json) -> None:
    script = tmp_path / "script.lua"
    script.write_text("return obj")
    assert interpreter.run(script, value) == value


def test_an_error_of_a_script_is_told(interpreter: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "script.lua"
    script.write_text("return obj.status.conditions")
    with pytest.raises(LuaError, match="attempt to index"):
        interpreter.run(script, {"spec": {}})
