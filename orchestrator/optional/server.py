"""Sampling from an OpenAI-compatible server, such as vLLM's: no GPU is needed in the cluster.

Every sample is a separate request with its own seed, so that it depends only on (seed, prompt_id,
index) if the server honors `seed`, as vLLM does. The server caches a prompt for all of its samples.
By default, prompts are rendered here and sent as token ids, exactly as in training; with `api:
chat`, the server's own chat template renders them.

The key is read from an environment variable of the calling process and kept in its memory. It does
not appear in arguments, files, logs or messages, even if a server's own message repeats it.
"""

import asyncio
import logging
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from orchestrator.plugins.counts import counted
from orchestrator.plugins.deadlines import EndlessReply, limit_body_async
from orchestrator.plugins.streams import stream_key
from orchestrator.sampling.base import (
    Completion,
    Interrupted,
    Request,
    SamplingError,
    SamplingSettings,
    TokenSampler,
)
from orchestrator.sampling.engine_args import VLLM_LORA_RANKS
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.errors import one_line
from orchestrator.storage.identity import folder_identity

CONNECT_SECONDS = 10.0
CONTROL_RETRIES = 2  # of requests that draw nothing: their errors should arrive soon
PREFIX = "decile-"  # of the names of adapters
NO_ADAPTER = f"{PREFIX}none"  # a name that no adapter has
MAX_MESSAGE = 300
TOO_LONG = ("context_length_exceeded", "context length")  # a code of OpenAI's, and vLLM's words


class ServedModel(BaseModel):
    """One model of GET /models; all but `id` are extensions of vLLM's.

    `root` is the folder or hub id that the server loaded; an adapter has a `parent`, its model.
    """

    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class _ServedModels(BaseModel):
    data: list[ServedModel]


class PromptTooLong(SamplingError):
    """The prompt and the completion do not fit the model's window."""


@dataclass(frozen=True)
class Endpoint:
    """A server and how long to wait for it; raises SamplingError if it fails."""

    base_url: str
    api_key_env: str = ""
    timeout: float = 600.0
    max_retries: int = 60
    _key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the key. Raises SamplingError if the environment has none."""
        name = self.api_key_env
        key = os.environ.get(name, "").strip() if name else ""
        if name and not key:
            raise SamplingError(
                f"api_key_env: the environment variable {name} is not set in a worker of Ray: "
                "export it before Ray starts, on every node"
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise SamplingError(
                f"api_key_env: {name} has characters that are invalid in a key: set it again"
            )
        object.__setattr__(self, "_key", key)

    def client(self, retries: int | None = None) -> AbstractAsyncContextManager[Any]:
        """A client, to be used in one event loop; retries 408, 409, 429, 5xx and lost connections.

        Raises SamplingError without the openai library.
        """
        try:
            import openai
        except ImportError as error:
            raise SamplingError(
                "engine server is not installed: pip install 'decile[server]'"
            ) from error
        client: AbstractAsyncContextManager[Any] = openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=self._key or "none",  # never the library's default, OPENAI_API_KEY
            timeout=openai.Timeout(self.timeout, connect=CONNECT_SECONDS),
            max_retries=self.max_retries if retries is None else retries,
            http_client=openai.DefaultAsyncHttpxClient(
                event_hooks={"response": [limit_body_async]}
            ),
        )
        return client

    async def post(self, client: Any, path: str, body: dict[str, Any]) -> Any:
        """The reply to one request, as JSON if possible, else as text."""
        try:
            with self._faults():
                return await client.post(path, cast_to=object, body=body)
        except (ValueError, RecursionError):  # RecursionError: nested too deep
            return "text that is not JSON"

    async def models(self) -> list[ServedModel]:
        """The models that the server serves."""
        async with self.client(CONTROL_RETRIES) as client:
            try:
                with self._faults():
                    async with asyncio.timeout(self.timeout):
                        reply = await client.get("/models", cast_to=object)
                return _ServedModels.model_validate(reply).data
            except (ValueError, RecursionError):  # of JSON, of Unicode, or of pydantic
                raise self.error("GET /models does not list models: check base_url") from None

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Load the LoRA adapter in this folder, which the server itself reads, under a new name."""
        try:
            await self._control("load", {"lora_name": name, "lora_path": str(folder)})
        except SamplingError as error:
            if "already been loaded" not in str(error):  # by a request whose reply was lost
                raise SamplingError(
                    f"{error}; the server must see the adapter under this path: {folder}"
                ) from None

    async def unload_adapter(self, name: str) -> None:
        """Unload the adapter of that name. It is not an error if it is not loaded."""
        try:
            await self._control("unload", {"lora_name": name})
        except SamplingError:
            if any(model.id == name for model in await self.models()):
                raise

    async def unload_adapters(self, prefix: str) -> None:
        """Unload the adapters whose names begin with `prefix`."""
        for model in await self.models():
            if model.id.startswith(prefix):
                await self.unload_adapter(model.id)

    async def check_adapters(self, rank: int) -> None:
        """Raise SamplingError if the server cannot load adapters.

        Tries to load a missing adapter: only a server that can load adapters reports the file.
        """
        missing = f"/{NO_ADAPTER}"
        try:
            await self._control("load", {"lora_name": NO_ADAPTER, "lora_path": missing})
        except SamplingError as error:
            if missing not in str(error):
                largest = next((known for known in VLLM_LORA_RANKS if known >= rank), rank)
                raise SamplingError(
                    f"{error}; to evaluate adapters, start vLLM with --enable-lora "
                    f"--max-lora-rank {largest} and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
                ) from None

    async def _control(self, verb: str, body: dict[str, Any]) -> None:
        async with self.client(CONTROL_RETRIES) as client:
            with self._faults():
                async with asyncio.timeout(self.timeout):
                    await client.post(f"/{verb}_lora_adapter", cast_to=str, body=body)

    def error(self, message: str) -> SamplingError:
        """An error of this server, with its address and without the key."""
        return SamplingError(self._sentence(message))

    def without_key(self, text: str) -> str:
        """The text of a server without the key. To be called before a text is truncated."""
        return text.replace(self._key, "***") if self._key else text

    def _sentence(self, message: str) -> str:
        return f"server {self.base_url}: {one_line(self.without_key(message))}"

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raise errors of a request as SamplingError."""
        import openai

        try:
            yield
        except (openai.APIError, TimeoutError, EndlessReply) as error:
            raise self._fault(error) from None

    def _fault(self, error: Any) -> SamplingError:
        """The meaning of a request's error, with a remedy."""
        import openai

        if isinstance(error, TimeoutError | openai.APITimeoutError):
            return self.error(f"it does not answer within {self.timeout:g} s")
        if isinstance(error, EndlessReply):
            return self.error(str(error))
        if not isinstance(error, openai.APIStatusError):
            cause = error.__cause__ or error
            return self.error(
                f"it cannot be reached ({type(cause).__name__}: {cause}): "
                "start it, or correct base_url"
            )
        status, body = error.status_code, error.body
        if isinstance(body, dict):  # the forms that servers use
            body = body.get("message") or body.get("detail") or body
        text = one_line(self.without_key(str(body or error.message)))
        text = text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"
        if status == 400 and any(words in f"{error.code} {text}" for words in TOO_LONG):
            return PromptTooLong(self._sentence(text))
        if status in (401, 403):
            name = self.api_key_env
            remedy = f"set {name} to a valid key" if name else "write engine_args: {api_key_env: …}"
            return self.error(f"it rejects the key ({status}: {text}): {remedy}")
        if status == 404 and (text == "Not Found" or not isinstance(error.body, dict)):
            return self.error(f"it has no {error.request.url.path} (404): check base_url")
        if status in (408, 409, 429) or status >= 500:
            wait = error.response.headers.get("retry-after", "")
            asks = f" and asks to wait {wait} s" if wait.isdecimal() else ""
            return self.error(f"it still answers {status} ({text}){asks}")
        return self.error(f"it rejects a request ({status}: {text})")


log = logging.getLogger(__name__)

MAX_CONCURRENCY = 128
REPLIES = 3  # tries: a proxy may sometimes answer instead of the server
STALLED = 2  # timeouts without any completion that end the run
PATHS = {"completions": "/completions", "chat": "/chat/completions"}
ENDS = ("stop", "length")  # a completion with any other end is an error
ERROR = Completion("", 0, "error")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


# Half of a surrogate pair is a ValueError.
_Text = Annotated[str, AfterValidator(lambda text: text.encode().decode())]


class _Message(BaseModel):
    content: _Text | None = None  # null if all of the text is reasoning


class _Choice(BaseModel):
    finish_reason: str
    text: _Text = ""
    message: _Message = _Message()


class _Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int = Field(ge=0)


class _Reply(BaseModel):
    """The fields that are read from a reply, in either interface."""

    choices: list[_Choice] = Field(min_length=1, max_length=1)
    usage: _Usage


class _Job(NamedTuple):
    """One completion to draw, and its place in the results; a chat's prompt has no token ids."""

    row: int
    column: int
    body: dict[str, Any]


class ServerSampler(TokenSampler):
    """Calls one server; a prompt that leaves no space for an answer is an error.

    `served` is the name of the model there, and `window` its length, prompt and answer together.
    None if the server does not report it, which is then neither vLLM nor SGLang.
    """

    adapts = True

    def __init__(
        self,
        endpoint: Endpoint,
        tokenizer: Any,
        served: str,
        window: int | None = None,
        api: str = "completions",
        max_concurrency: int = MAX_CONCURRENCY,
    ) -> None:
        self.endpoint, self.tokenizer = endpoint, tokenizer
        self.chat_template_kwargs: dict[str, Any] = {}
        self.served, self.window, self.api = served, window, api
        self.max_concurrency, self.adapter = max_concurrency, ""

    @classmethod
    def load(
        cls,
        source: ModelSource,
        device: str | None = None,
        lora_rank: int = 0,
        *,
        model: str = "",
        api: str = "completions",
        max_concurrency: int = MAX_CONCURRENCY,
        **endpoint: Any,
    ) -> Self:
        """A sampler of the server's model: the source's model, or the model named `model` there.

        `endpoint` are the fields of `Endpoint`. Raises ValueError without the model's tokenizer.
        Raises SamplingError without the openai library or the key, or if the server cannot be
        reached, has a different model, or cannot swap adapters (with `lora_rank`).
        """
        from orchestrator.sampling.loading import load_tokenizer

        server, served = Endpoint(**endpoint), model or source.location
        tokenizer = load_tokenizer(source)
        window = asyncio.run(_window(server, served, source, adapts=lora_rank > 0))
        if lora_rank:
            asyncio.run(server.check_adapters(lora_rank))
        sampler = cls(server, tokenizer, served, window, api, max_concurrency)
        sampler.chat_template_kwargs = source.chat_template_kwargs
        return sampler

    @classmethod
    def unload(cls, label: str, **engine_args: Any) -> None:
        """Unload every adapter whose `adapter_label` has this prefix. Raises SamplingError."""
        names = {each.name for each in fields(Endpoint) if each.init}
        endpoint = Endpoint(**{name: engine_args[name] for name in names & engine_args.keys()})
        asyncio.run(endpoint.unload_adapters(f"{PREFIX}{label}-"))

    def adapt(self, folder: Path) -> None:
        """Load this adapter into the server, which reads the folder itself.

        Its name is new: other users of the server may have equal adapters, and a process that is
        believed dead may unload its own. vLLM caches prompts by the name, regardless of the
        content.
        """
        self.drop_adapter()
        content = folder_identity(folder).removeprefix("folder:")
        parts = filter(None, (self.adapter_label, content, uuid.uuid4().hex[:8]))
        self.adapter = PREFIX + "-".join(parts)
        asyncio.run(self.endpoint.load_adapter(self.adapter, folder.resolve()))

    def drop_adapter(self) -> None:
        """Unload the adapter; an adapter that stays loaded only costs memory of the server."""
        name, self.adapter = self.adapter, ""
        if name:
            try:
                asyncio.run(self.endpoint.unload_adapter(name))
            except SamplingError as error:
                log.warning("adapter %s stays loaded: %s", name, error)

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        """Per request, one completion per sample index, in the order of the request.

        Raises SamplingError for settings that the server does not support, and Interrupted, with
        the drawn completions, if it fails for longer than the retries.
        """
        if self.window is not None and settings.max_completion_length >= self.window:
            raise self.endpoint.error(
                f"max_model_len {self.window} leaves no space for a prompt and "
                f"max_completion_length {settings.max_completion_length}: start it with a larger "
                "--max-model-len, or write a smaller max_completion_length"
            )
        extensions = {"top_k": settings.top_k, "chat_template_kwargs": self.chat_template_kwargs}
        for name, value in extensions.items():
            if value and self.api == "chat" and self.window is None:
                raise self.endpoint.error(
                    f"only vLLM and SGLang support {name}, and it is neither: remove {name}"
                )
        drawn: list[list[Any]] = [[None] * len(r.samples) for r in requests]
        if failure := asyncio.run(self._draw(self._jobs(requests, settings, drawn), drawn)):
            raise Interrupted(f"{failure}; rerun to draw the missing completions", drawn)
        return drawn

    def _jobs(
        self, requests: Sequence[Request], settings: SamplingSettings, drawn: list[list[Any]]
    ) -> Iterator[_Job]:
        """The requests to send; a prompt that is too long is an error at once."""
        settings_body: dict[str, Any] = {
            "model": self.adapter or self.served,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
        }
        if settings.stop:
            settings_body["stop"] = list(settings.stop)
        if self.api == "chat" and self.chat_template_kwargs:
            settings_body["chat_template_kwargs"] = self.chat_template_kwargs
        if self.api == "completions" or self.window is not None:
            # vLLM takes omitted settings of a request from the model's generation_config.json.
            settings_body |= {
                "top_k": settings.top_k or -1,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
            }
        for row, request in enumerate(requests):
            limit = request.limit_of(settings)
            prompt: dict[str, Any] = {"messages": request.messages}
            if self.api == "completions":
                [ids] = self.rendered([request])
                if self.window and len(ids) + limit > self.window:
                    drawn[row] = [ERROR] * len(request.samples)
                    continue
                prompt = {"prompt": ids}
            for column, sample in enumerate(request.samples):
                seed = stream_key(settings.seed, request.prompt_id, sample) >> 65  # as engine vllm
                body = prompt | settings_body | {"max_tokens": limit, "seed": seed}
                yield _Job(row, column, body)

    async def _draw(self, jobs: Iterator[_Job], drawn: list[list[Any]]) -> str:
        """Fill in the completions; returns the reason for missing ones, or an empty text.

        After a failure nothing new is sent, but running requests are waited for.
        """
        failure, patience = "", STALLED * self.endpoint.timeout
        running: dict[asyncio.Task[Completion], _Job] = {}
        async with self.endpoint.client() as client:
            while True:
                while not failure and len(running) < self.max_concurrency:
                    if (job := next(jobs, None)) is None:
                        break
                    running[asyncio.create_task(self._completion(client, job.body))] = job
                if not running:
                    return failure
                done, _ = await asyncio.wait(
                    running, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:  # asyncio.run cancels the others
                    return failure or str(
                        self.endpoint.error(f"no completion within {patience:g} s")
                    )
                for task in done:
                    job = running.pop(task)
                    try:
                        completion = drawn[job.row][job.column] = task.result()
                        if self.listener:
                            self.listener.on_ended(1)
                            self.listener.on_completion(job.row, job.column, completion)
                    except SamplingError as error:
                        failure = failure or str(error)

    async def _completion(self, client: Any, body: dict[str, Any]) -> Completion:
        """One completion; an error for a prompt that is too long."""
        reply: Any = None
        problem = ""
        for _ in range(REPLIES):
            try:
                reply = await self.endpoint.post(client, PATHS[self.api], body)
                return self._read(_Reply.model_validate(reply), body)
            except PromptTooLong:
                return ERROR
            except ValidationError as error:
                first = error.errors()[0]
                field = ".".join(map(str, first["loc"]))
                problem = f" ({field}: {first['msg']})" if field else ""
        text = self.endpoint.without_key(str(reply))
        raise self.endpoint.error(f"its reply is not a completion{problem}: {text[:160]!r}")

    def _read(self, reply: _Reply, body: dict[str, Any]) -> Completion:
        """The completion of a reply; an error unless it stopped or reached the limit."""
        [choice], usage, limit = reply.choices, reply.usage, body["max_tokens"]
        if "prompt" in body and usage.prompt_tokens != len(body["prompt"]):
            raise self.endpoint.error(
                f"it read {counted(usage.prompt_tokens, 'token')} of a prompt of "
                f"{len(body['prompt'])}, so "
                "it does not take token ids: write engine_args: {api: chat}"
            )
        if usage.completion_tokens > limit or choice.finish_reason == "abort":
            reason = self.endpoint.without_key(choice.finish_reason)
            raise self.endpoint.error(
                f"a completion of {counted(usage.completion_tokens, 'token')} ended by "
                f"{reason!r:.40}, where max_tokens is {limit}"
            )
        text = choice.text if self.api == "completions" else choice.message.content or ""
        finish: Any = choice.finish_reason
        return Completion(text, usage.completion_tokens, finish) if finish in ENDS else ERROR


async def _window(
    endpoint: Endpoint, served: str, source: ModelSource, *, adapts: bool = False
) -> int | None:
    """The length of the served model, None if unknown.

    SamplingError if it is a different model, or an adapter, which other adapters would replace.
    """
    models = await endpoint.models()
    card = next((model for model in models if model.id == served), None)
    if card is None:
        names = ", ".join(endpoint.without_key(model.id)[:80] for model in models[:8]) or "no model"
        raise endpoint.error(
            f"it serves {names}, not {served}: write its name as engine_args: {{model: …}}"
        )
    root = card.root or ""
    if source.revision and HUB_ID.fullmatch(root) and root.lower() != source.location.lower():
        raise endpoint.error(f"its model {served} is {root}, not {source.location}")
    if adapts and card.parent:
        raise endpoint.error(
            f"its model {served} is an adapter of {card.parent}, and each checkpoint's adapter "
            f"would replace it: write engine_args: {{model: {card.parent}}}"
        )
    return card.max_model_len
