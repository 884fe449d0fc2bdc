"""Drives the OpenAI Agents SDK with a model that rewords: each line in is a run, each line out what came of it."""

import asyncio
import json
import sys
from uuid import uuid4

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import refund_agent


def receipt(output):
    """The first receipt of a tool's answer; none: it is not done, or no answer came."""
    try:
        told = json.loads(output)
        told = json.loads(told["text"]) if "text" in told else told
    except ValueError:
        return None
    effects = told.get("effects") or [told]
    return effects[0].get("receipt") if told.get("status", "done") in ("done", "already_done") else None


class Scripted(Model):
    """Asks for one refund in other words and under another id each time, until it is told a receipt."""

    def __init__(self, return_id):
        self.return_id = return_id
        self.heard = []

    async def get_response(self, system_instructions, input, *args, **kwargs):
        answers = [item["output"] for item in input if item.get("type") == "function_call_output"]
        self.heard = [answer if isinstance(answer, str) else answer[0]["text"] for answer in answers]
        found = receipt(self.heard[-1]) if self.heard else None
        if found:
            return self.response(self.say(f"Refunded: {found}"))
        if self.heard:
            await asyncio.sleep(1)
        return self.response(self.call())

    def say(self, text):
        content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
        return ResponseOutputMessage(
            id=f"msg_{uuid4()}", content=content, role="assistant", status="completed", type="message"
        )

    def call(self):
        reason = f"arrived broken, in my words {uuid4()}"
        arguments = json.dumps({"return_id": self.return_id, "reason": reason})
        return ResponseFunctionToolCall(
            call_id=f"call_{uuid4()}", name="issue-refund", arguments=arguments, type="function_call"
        )

    def response(self, item):
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError("nobody streams here")


async def over_http(request, model, run):
    headers = {"Authorization": f"Bearer {run['token']}"} if "token" in run else {}
    params = {"url": run["url"], "headers": headers}
    async with MCPServerStreamableHttp(params, client_session_timeout_seconds=run["timeout"]) as server:
        agent = Agent(name="Refunds", instructions="You refund returns.", model=model, mcp_servers=[server])
        return await Runner.run(agent, request, max_turns=100)


async def main():
    set_tracing_disabled(True)
    while line := sys.stdin.readline():
        run = json.loads(line)
        model = Scripted(run["return_id"])
        request = "My kettle arrived broken. Please refund it."
        try:
            result = await (over_http(request, model, run) if "url" in run else refund_agent.refund(request, model))
            told = {"said": result.final_output, "receipt": receipt(model.heard[-1])}
        except Exception as error:
            told = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps({"heard": model.heard, **told}), flush=True)


asyncio.run(main())
