"""Tests of programs: reads the forms of data sets, and compares them with a program's results.

All forms become one JSON text, the form of `Tests`: {"asserts": [scripts]}, {"stdin": [[input,
output], …]} or {"calls": name, "tests": [[arguments, expected], …]}.
"""

import ast
import json
import math
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypedDict, cast

from orchestrator.optional.code.sandbox import (
    REPLY,
    SLACK,
    START,
    Limits,
    SandboxError,
    free_names,
    run_asserts,
    run_program,
)
from orchestrator.optional.code.sandbox_guest import OUT_OF_TIME, PASSED
from orchestrator.plugins.counts import counted
from tasks.children import Children

FORMS = (
    "write asserts (text, or a list of texts), {inputs: […], outputs: […]} with fn_name for "
    "functions, or a list of {input, output, testtype: stdin or functional}"
)


class Unreadable(ValueError):
    """Tests of an unknown form; the message describes the error."""


class Tests(TypedDict, total=False):
    """Tests in their canonical form: of a script, of a program, or of a function."""

    asserts: list[str]
    stdin: list[list[str]]
    calls: str
    tests: list[list[Any]]


# --- Reading ---


def read_tests(value: Any, function: str = "") -> str:
    """The canonical JSON text of tests; `function` is the name that they call, if they give none.

    Raises Unreadable.
    """
    tests = _read(value, function)
    [first, *_] = tests.values()
    if not tests.get("tests", first):
        raise Unreadable("it has no tests")
    return json.dumps(tests, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _read(value: Any, function: str) -> Tests:
    if isinstance(value, str):
        text = value.strip()
        if text.startswith(("{", "[")):
            try:
                return _read(json.loads(text), function)
            except (ValueError, RecursionError) as error:
                if isinstance(error, Unreadable):
                    raise
                raise Unreadable(f"it is not JSON: {error}") from error
        return {"asserts": _scripts(value, function)}
    if isinstance(value, Mapping):
        return _read_object(value, function)
    if not isinstance(value, Sequence):
        raise Unreadable(f"{value!r:.60} is not a text, a list or an object")
    if not value:
        raise Unreadable("it is an empty list")
    if all(isinstance(item, str) for item in value):
        return {"asserts": [script for item in value for script in _scripts(item, function)]}
    if all(isinstance(item, Mapping) for item in value):
        return _read_pairs(value, function)
    raise Unreadable("its items are neither texts nor objects")


def _read_object(value: Mapping[str, Any], function: str) -> Tests:
    if _is_canonical(value):
        return cast(Tests, dict(value))
    if "test_cases" in value:  # of SYNTHETIC-1
        return _read(value["test_cases"], function)
    if "inputs" not in value or "outputs" not in value:
        if "input" in value and "output" in value:
            return _read_pairs([value], function)
        keys = f"the keys {', '.join(map(str, value))}" if value else "no keys"
        raise Unreadable(f"it has {keys}")
    inputs, outputs = value["inputs"], value["outputs"]
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise Unreadable("inputs or outputs is not a list")
    if len(inputs) != len(outputs):
        raise Unreadable(
            f"it has {counted(len(inputs), 'input')} and {counted(len(outputs), 'output')}"
        )
    pairs = [*zip(inputs, outputs, strict=True)]
    return _calls(value["fn_name"], pairs) if value.get("fn_name") else _stdin(pairs)


def _is_canonical(value: Mapping[str, Any]) -> bool:
    """Whether `read_tests` returned this."""
    tests = value.get("tests", value.get("stdin"))
    pairs = isinstance(tests, list) and all(isinstance(t, list) and len(t) == 2 for t in tests)
    if value.keys() == {"calls", "tests"}:
        return pairs and all(isinstance(given, list) for given, _ in value["tests"])
    if value.keys() == {"stdin"}:
        return pairs and all(isinstance(text, str) for pair in value["stdin"] for text in pair)
    scripts = value["asserts"] if value.keys() == {"asserts"} else None
    if not isinstance(scripts, list) or not all(isinstance(script, str) for script in scripts):
        return False
    for script in scripts:
        _body(script)
    return True


def _read_pairs(items: Sequence[Mapping[str, Any]], function: str) -> Tests:
    kinds = {item.get("testtype") or item.get("type") or "" for item in items}
    for item in items:
        if "input" not in item or "output" not in item:
            raise Unreadable(f"a test has the keys {', '.join(map(str, item))}")
    pairs = [(item["input"], item["output"]) for item in items]
    if kinds <= {"stdin", "stdin_stdout"} or (kinds == {""} and not function):
        return _stdin(pairs)
    if not kinds <= {"functional", "function_call", ""}:
        raise Unreadable(f"a test has the type {sorted(kinds)[-1]!r:.40}")
    metadata = items[0].get("metadata")
    named = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    name = items[0].get("fn_name") or named or function
    if not name:
        raise Unreadable("its functional tests do not name a function: name the column entry_point")
    return _calls(name, pairs)


def _stdin(pairs: Sequence[tuple[Any, Any]]) -> Tests:
    return {"stdin": [[_text(given), _text(expected)] for given, expected in pairs]}


def _text(value: Any) -> str:
    """An input or output: text, or a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise Unreadable(f"the input or output {value!r:.40} is not a text")
    return value


def _calls(name: Any, pairs: Sequence[tuple[Any, Any]]) -> Tests:
    """Calls of a function: arguments and results as JSON, or as texts of JSON (one per line)."""
    if not isinstance(name, str) or not name.isidentifier():
        raise Unreadable(f"the function name {name!r:.40} is not a name")
    tests = []
    for given, expected in pairs:
        try:
            if isinstance(given, str):
                given = [json.loads(line) for line in given.split("\n") if line.strip()]
            if isinstance(expected, str):
                expected = json.loads(expected)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"an argument or result of {name} is not JSON: {error}") from error
        if not isinstance(given, list):
            raise Unreadable(f"the input {given!r:.40} of {name} is not a list of arguments")
        tests.append([given, expected])
    return {"calls": name, "tests": tests}


def _scripts(code: str, function: str) -> list[str]:
    """One script per assert, with the other statements before it.

    HumanEval's `check(candidate)` is called with the function; if it only asserts, each assert is a
    test. Functions `test…` without asserts around them are called.
    """
    body = _body(code)
    definitions = [node for node in body if isinstance(node, ast.FunctionDef)]
    check = next((node for node in definitions if node.name == "check"), None)
    if check is not None and function:
        return _asserts_of_check(code, body, check, function)
    if not any(isinstance(node, ast.Assert) for node in body):
        tests = [node.name for node in definitions if node.name.startswith("test")]
        if not tests and not any(
            isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code))
        ):
            raise Unreadable("its code has no assert")
        if not tests and not _calls_something(body):
            raise Unreadable(
                "its asserts are in definitions that are not called: add the call, or name the "
                "function under test in the column entry_point"
            )
        return [f"{code.rstrip()}\n\n{name}()" for name in tests] or [code]
    if len({node.lineno for node in body}) < len(body):  # several statements in a line
        return [code]
    before: list[str] = []
    scripts: list[str] = []
    for node in body:
        text = _lines(code, node)
        if isinstance(node, ast.Assert):
            scripts.append("\n".join([*before, text]))
        else:
            before.append(text)
    return scripts


def _calls_something(body: Sequence[ast.stmt]) -> bool:
    """Whether statements outside definitions have an assert or a call, as tests need."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(
        isinstance(node, ast.Assert | ast.Call)
        for statement in body
        if not isinstance(statement, definitions)
        for node in ast.walk(statement)
    )


def _body(code: str) -> list[ast.stmt]:
    try:
        return ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"it is neither JSON nor Python: {error}") from error


def _asserts_of_check(
    code: str, body: Sequence[ast.stmt], check: ast.FunctionDef, function: str
) -> list[str]:
    """The asserts of HumanEval's `check(candidate)` if it has nothing else; else a call of it."""
    asserts = [node for node in check.body if not isinstance(node, ast.Expr)]
    others = [node for node in body if node is not check and "METADATA" not in _lines(code, node)]
    if others or not all(isinstance(node, ast.Assert) for node in asserts):
        return [f"{code.rstrip()}\n\ncheck({function})"]
    name = check.args.args[0].arg
    return [
        f"{name} = {function}\n{ast.get_source_segment(code, node)}"
        for node in asserts
        if not (isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant))
    ]


def _lines(code: str, node: ast.stmt) -> str:
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(code.split("\n")[start - 1 : node.end_lineno])


def called_names(answer: str) -> list[str]:
    """The names that tests call but do not define, so that a program must define them."""
    tests = json.loads(answer)
    if "asserts" not in tests:
        return [tests["calls"]] if "calls" in tests else []
    called: dict[str, None] = {}
    for script in tests["asserts"]:
        free = free_names(script)[0]
        calls = (node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call))
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id in free:
                called[call.func.id] = None
    return [*called]


# --- Running ---


class UnsentArgument(ValueError):
    """A test calls the program with a value that cannot be sent to its sandbox."""


class Result(NamedTuple):
    """How many of the tests passed; `end` is as in `sandbox.Run`."""

    passed: int
    tests: int
    end: str


def run_tests(code: str, answer: str, limits: Limits) -> Result:
    """Run a program on the tests of a canonical text. Raises SandboxError and UnsentArgument."""
    tests = compiled(answer)
    if tests.kind == "scripts":
        run = run_asserts(code, tests.expected, limits)
        for reply in run.replies:
            if reply.startswith('{"unsent"'):
                raise UnsentArgument(json.loads(reply)["unsent"])
        return Result(run.replies.count(PASSED), len(tests.expected), run.end)
    run = run_program(code, tests.requests, tests.kind == "values", limits)
    passed, end = _compare(answer, run.replies, limits)
    out_of_time = "time-limit" if OUT_OF_TIME in run.replies else ""
    return Result(passed, len(tests.expected), run.end or out_of_time or end)


_COMPARING: list[Children] = []  # each compares for one thread at a time


def _compare(answer: str, replies: Sequence[str], limits: Limits) -> tuple[int, str]:
    """How many replies are as expected, and why comparing ended early, if it did.

    A reply may be designed to take a long time or much memory, so a child process reads it. It may
    use as much CPU time as the program itself. Raises SandboxError.
    """
    try:
        children = _COMPARING.pop()
    except IndexError:
        functions = "orchestrator.optional.code.code_results:count_passed"
        children = Children(functions, count=1, limit=1.0)
    wall = math.ceil(limits.wall + START)
    try:
        [reply] = children.map([[answer, replies, limits.seconds]], weights=[wall])
    finally:
        _COMPARING.append(children)
    if reply.failure == "time-limit":
        raise SandboxError("the results could not be compared: time-limit")
    if reply.failure:
        return 0, "time-limit" if reply.detail == signal.SIGPROF.name else "crashed"
    return reply.value, ""


Kind = Literal["outputs", "values", "checks", "scripts"]


class Compiled(NamedTuple):
    """Tests as requests with expected replies; or scripts, which need no requests."""

    kind: Kind
    requests: Sequence[Sequence[Any]]
    expected: Sequence[Any]


@lru_cache(maxsize=256)
def compiled(answer: str) -> Compiled:
    """The tests of a canonical text."""
    tests = json.loads(answer)
    if "stdin" in tests:
        scripts = [("script", _limit(expected), given) for given, expected in tests["stdin"]]
        return Compiled("outputs", scripts, [expected for _, expected in tests["stdin"]])
    if "calls" in tests:
        calls = [_Call(tests["calls"], given, {}) for given, _ in tests["tests"]]
        limits = [_limit(json.dumps(expected)) for _, expected in tests["tests"]]
        requests = [call.request(limit) for call, limit in zip(calls, limits, strict=True)]
        return Compiled("values", requests, [expected for _, expected in tests["tests"]])
    calls_of = [_as_call(script) for script in tests["asserts"]]
    if any(call is None for call in calls_of):
        return Compiled("scripts", [], tests["asserts"])
    converted = [call for call in calls_of if call is not None]
    requests = [call.request(limit) for call, _, limit in converted]
    return Compiled("checks", requests, [check for _, check, _ in converted])


def _limit(expected: str) -> int:
    """The most bytes of an output that can still be as expected.

    A program can read its limits, so they must not reveal answers: a power of two, and the same one
    for all answers up to 32 KiB.
    """
    size = 2 * len(expected.encode("utf-8", "surrogatepass")) + SLACK
    return 1 << (max(size, 2 * SLACK) - 1).bit_length()


# --- Asserts that compare one call with a literal, which need no second sandbox ---

_WRAPPERS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function for function in (set, sorted, list, tuple, len, bool)
}
_Check = Callable[[Any], object]


class _Call(NamedTuple):
    """A call of a program's definition, with plain arguments."""

    name: str
    arguments: Sequence[Any]
    named: Mapping[str, Any]

    def request(self, limit: int) -> list[Any]:
        """The request for a new process of the program."""
        arguments = [("name", self.name), *(("value", value) for value in self.arguments)]
        named = {key: ("value", value) for key, value in self.named.items()}
        return ["new", limit, "call", arguments, named]


def _as_call(script: str) -> tuple[_Call, _Check, int] | None:
    """The call, the check of its value and the limit of its size; None for any other script."""
    body = [n for n in ast.parse(script).body if not isinstance(n, ast.Import | ast.ImportFrom)]
    first = body[0] if body else None
    if isinstance(first, ast.Assign) and isinstance(first.value, ast.Name):
        body = body[1:]  # candidate = function
        for node in (n for statement in body for n in ast.walk(statement)):
            if isinstance(node, ast.Name) and node.id == ast.unparse(first.targets[0]):
                node.id = first.value.id
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        return None
    try:
        return _test(body[0].test)
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
        return None


def _test(test: ast.expr) -> tuple[_Call, _Check, int] | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _test(test.operand)
        if inner is None or not isinstance(test.operand, ast.Call):
            return None
        call, holds, limit = inner
        return call, lambda value: not holds(value), limit
    if isinstance(test, ast.Call):
        if ast.unparse(test.func) in ("math.isclose", "isclose") and len(test.args) == 2:
            left, right = test.args
            options = {str(k.arg): ast.literal_eval(k.value) for k in test.keywords}
            return _compared(left, right, lambda a, b: math.isclose(a, b, **options))
        return _call(test), bool, REPLY
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right, operator = test.left, test.comparators[0], test.ops[0]
    if isinstance(operator, ast.Eq):
        if not _is_call(left):
            left, right = right, left
        return _compared(left, right, lambda a, b: a == b)
    if isinstance(operator, ast.Is) and ast.unparse(right) in ("None", "True", "False"):
        return _compared(left, right, lambda a, b: a is b)
    if isinstance(operator, ast.Lt | ast.LtE) and _is_call(left, "abs"):
        [difference], most = left.args, ast.literal_eval(right)  # type: ignore[attr-defined]
        if isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Sub):
            one, other = difference.left, difference.right
            if not _is_call(one):
                one, other = other, one
            strict = isinstance(operator, ast.Lt)
            return _compared(
                one, other, lambda a, b: abs(a - b) < most if strict else abs(a - b) <= most
            )
    return None


def _compared(
    left: ast.expr, right: ast.expr, same: Callable[[Any, Any], object]
) -> tuple[_Call, _Check, int]:
    """A call, or `set(call)` and the like, compared with a literal, or `set(…)` of one.

    Raises ValueError for anything else.
    """
    wrap: Callable[[Any], Any] = lambda value: value  # noqa: E731
    if (wrapped := _wrapped(left)) and len(wrapped[1]) == 1 and _is_call(wrapped[1][0]):
        wrap, [left] = wrapped
    if wrapped := _wrapped(right):
        expected = wrapped[0](*map(ast.literal_eval, wrapped[1]))
    else:
        expected = ast.literal_eval(right)
    call = _call(left)
    return call, lambda value: same(wrap(value), expected), _limit(repr(expected))


def _wrapped(node: ast.expr) -> tuple[Callable[..., Any], list[ast.expr]] | None:
    """The function and the arguments of a call of one of _WRAPPERS."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        wrap = _WRAPPERS.get(node.func.id)
        return None if wrap is None else (wrap, node.args)
    return None


def _is_call(node: ast.expr, name: str = "") -> bool:
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return named and (not name or node.func.id == name)  # type: ignore[attr-defined]


def _call(node: ast.expr) -> _Call:
    """A call of a plain name with literal arguments. Raises ValueError for any other."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("not a call of a name")
    if any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("a call with **")
    arguments = [ast.literal_eval(argument) for argument in node.args]
    named = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
    return _Call(node.func.id, arguments, named)
