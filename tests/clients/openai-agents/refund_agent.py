"""An agent of the OpenAI Agents SDK whose tool calls happen once."""

import os

from agents import Agent, Runner
from agents.mcp import MCPServerStdio

SERVER = {
    "command": "oncegate",
    "args": ["serve", "refunds.wasm", "--context", "tenant=acme"],
    # Nothing else of this program's environment reaches the server.
    "env": {name: os.environ[name] for name in ("ONCEGATE_HOME", "PAY_KEY")},
}


async def refund(request, model=None):
    async with MCPServerStdio(SERVER, client_session_timeout_seconds=10) as server:
        agent = Agent(name="Refunds", instructions="You refund returns.", model=model, mcp_servers=[server])
        return await Runner.run(agent, request)
