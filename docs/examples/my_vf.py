"""An environment of verifiers 0.1 as one of Decile, with its rows, tools and rubric as they are.

datasets:
  played: {task: "my_vf:Played", options: {marker: "my_vf:score", test_share: 0.3}}
"""

import json
from inspect import Parameter, Signature
from unittest.mock import patch

import verifiers as vf
from my_vf_env import load_environment
from verifiers.types import AssistantMessage, ToolCall, ToolMessage

with patch("signal.signal"):  # verifiers sets handlers, which the thread of a training cannot
    ENV = load_environment()  # a ToolEnv or StatefulToolEnv
TYPES = {"integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class Played:
    @classmethod
    def rows(cls):
        names = ("prompt", "answer", "info")
        return [{name: row.get(name) for name in names} for row in ENV.get_dataset()]

    async def reset(self, prompt, answer="", info=None, **row):
        inputs = {"prompt": prompt, "answer": answer, "info": info, "example_id": 0}
        self.state = await ENV.init_state(inputs, client=vf.ClientConfig(), model="")
        await ENV.setup_state(self.state)
        self.messages = [*self.state["prompt"]]

    async def _call(self, name, arguments):
        self.messages.append(
            message({"tool_calls": [{"function": {"name": name, "arguments": arguments}}]})
        )
        self.messages += await ENV.env_response(self.messages, self.state)
        return self.messages[-1].content


def tool(definition):
    async def method(self, **arguments):
        return await self._call(definition.name, arguments)

    schemas = definition.parameters["properties"]
    types = {name: TYPES.get(schema.get("type"), str) for name, schema in schemas.items()}
    parameters = [Parameter("self", Parameter.POSITIONAL_ONLY)]
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=t) for name, t in types.items()
    ]
    method.__signature__, method.__annotations__ = Signature(parameters), types
    arguments = [
        f"    {name}: {schema.get('description', name)}" for name, schema in schemas.items()
    ]
    method.__name__ = definition.name
    method.__doc__ = "\n".join([definition.description, "", "Args:", *arguments])
    return method


for definition in ENV.tool_defs:
    setattr(Played, definition.name, tool(definition))


def message(message):  # as verifiers has it
    if message.get("role") == "tool":
        return ToolMessage(tool_call_id="0", content=message["content"])
    calls = [call["function"] for call in message.get("tool_calls") or []]
    calls = [ToolCall(id="0", name=c["name"], arguments=json.dumps(c["arguments"])) for c in calls]
    return AssistantMessage(content=message.get("content") or "", tool_calls=calls or None)


async def score(environments, completions, **columns):
    [played], [chat] = environments, completions
    played.state["completion"] = [message(each) for each in chat]
    await ENV.rubric.score_rollout(played.state)
    return [played.state["reward"]]
