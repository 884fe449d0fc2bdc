"""Drives the official MCP client of PyPI: each line in is a call, each line out what came of it."""

import asyncio
import json
import sys

import httpx2
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult


def server(plan):
    if "url" in plan:
        headers = {"Authorization": f"Bearer {plan['token']}"}
        return streamable_http_client(plan["url"], http_client=httpx2.AsyncClient(headers=headers, timeout=60))
    return StdioServerParameters(command=plan["command"], args=plan["args"], env=plan["env"])


def person(plan):
    if "answer" not in plan:
        return None

    async def answers(context, params):
        return ElicitResult(**plan["answer"])

    return answers


async def main():
    plan = json.loads(sys.stdin.readline())
    async with Client(server(plan), mode=plan["mode"], elicitation_callback=person(plan)) as client:
        # The client checks each answer against the schema that is listed here.
        tools = await client.list_tools()
        print(json.dumps([tool.name for tool in tools.tools]), flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            call = json.loads(line)
            try:
                result = await client.call_tool(
                    call["tool"], call["arguments"], read_timeout_seconds=call.get("timeout"), meta=call.get("meta")
                )
                told = {"isError": result.is_error, "structuredContent": result.structured_content}
                told["content"] = [{"text": block.text} for block in result.content]
                print(json.dumps(told), flush=True)
            except MCPError as error:
                print(json.dumps({"failed": str(error)}), flush=True)


asyncio.run(main())
