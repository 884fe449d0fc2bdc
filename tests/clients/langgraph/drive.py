"""Drives LangGraph with a model that rewords: each line in is a run, each line out what came of it."""

import asyncio
import json
import os
import sys
import time
from datetime import timedelta
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from refund_graph import SERVERS, refund_graph


def receipt(message):
    """The first receipt of a tool's answer; none: it is not done."""
    if not isinstance(message, ToolMessage) or message.status == "error":
        return None
    told = json.loads(message.content[0]["text"])
    effects = told.get("effects") or [told]
    return effects[0].get("receipt") if told.get("status", "done") in ("done", "already_done") else None


class Scripted(BaseChatModel):
    """Asks for one refund in other words and under another id each time, until it is told a receipt."""

    return_id: str
    asked: int = 0

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        if found := receipt(messages[-1]):
            message = AIMessage(f"Refunded: {found}")
        else:
            if isinstance(messages[-1], ToolMessage):
                time.sleep(1)
            self.asked += 1
            message = AIMessage("I refund it.", tool_calls=[self.call()])
        return ChatResult(generations=[ChatGeneration(message=message)])

    def call(self):
        reason = f"arrived broken, in my words {uuid4()}"
        return {"name": "issue-refund", "args": {"return_id": self.return_id, "reason": reason}, "id": f"call_{uuid4()}"}


REQUEST = {"messages": [("user", "My kettle arrived broken. Please refund it.")]}


def servers(run):
    if "url" not in run:
        return SERVERS
    server = {"transport": "streamable_http", "url": run["url"]}
    if token := run.get("token"):
        server["headers"] = {"Authorization": f"Bearer {token}"}
    if seconds := run.get("timeout"):
        server["session_kwargs"] = {"read_timeout_seconds": timedelta(seconds=seconds)}
    return {"refunds": server}


def desk(agent, saver, ask_person=False, retry=None):
    """A graph in which one node does all of the agent's work, model and tools."""

    async def work(state: MessagesState):
        told = await agent.ainvoke(state, {"recursion_limit": 200})
        if ask_person:
            interrupt("Is this right?")
        return {"messages": told["messages"]}

    graph = StateGraph(MessagesState)
    graph.add_node("work", work, retry_policy=retry)
    graph.add_edge(START, "work")
    return graph.compile(checkpointer=saver)


async def interrupted(model, run, saver, thread):
    """A person is asked after the tool ran; the node runs again from its start."""
    graph = desk(await refund_graph(model, False, servers(run)), saver, ask_person=True)
    first = await graph.ainvoke(REQUEST, thread)
    assert first["__interrupt__"], first
    return await graph.ainvoke(Command(resume="yes"), thread)


async def replayed(model, run, saver, thread):
    """To the end, then again from the checkpoint before the tool; reworded is its message there edited."""
    graph = await refund_graph(model, saver, servers(run))
    await graph.ainvoke(REQUEST, thread)
    past = [state async for state in graph.aget_state_history(thread)]
    before = [state for state in past if state.next == ("tools",)][-1]
    again = before.config
    if run["reword"]:
        message = AIMessage("I do it.", id=before.values["messages"][-1].id, tool_calls=[model.call()])
        again = await graph.aupdate_state(again, {"messages": [message]})
    return await graph.ainvoke(None, again)


async def killed(model, run, saver, thread):
    """Whoever runs this kills it; the next one goes on with what SQLite has."""
    graph = desk(await refund_graph(model, False, servers(run)), saver)
    run["resumed"] = bool((await graph.aget_state(thread)).next)
    if not run["resumed"]:
        # On disk before anything runs.
        await graph.aupdate_state(thread, REQUEST, as_node=START)
    return await graph.ainvoke(None, thread)


async def retried(model, run, saver, thread):
    """Three attempts, each of which waits for a short time only."""
    retry = RetryPolicy(max_attempts=3, initial_interval=0.1)
    graph = desk(await refund_graph(model, False, servers(run)), saver, retry=retry)
    return await graph.ainvoke(REQUEST, thread)


SCENARIOS = {"interrupted": interrupted, "replayed": replayed, "killed": killed, "retried": retried}


async def main():
    while line := sys.stdin.readline():
        run = json.loads(line)
        model = Scripted(return_id=run["return_id"])
        # As often as it is told to wait.
        thread = {"configurable": {"thread_id": run["return_id"]}, "recursion_limit": 200}
        try:
            async with AsyncSqliteSaver.from_conn_string(run["sqlite"]) as saver:
                last = await SCENARIOS[run["scenario"]](model, run, saver, thread)
            told = {"receipt": [found for message in last["messages"] if (found := receipt(message))][-1]}
            told["said"] = last["messages"][-1].content
        except Exception as error:
            told = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps({"asked": model.asked, "resumed": run.get("resumed"), **told}), flush=True)


# Nothing is told to anybody about runs.
os.environ["LANGSMITH_TRACING"] = "false"
asyncio.run(main())
