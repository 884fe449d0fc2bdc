"""The refund tool as most are written, over HTTP: it asks the shop, then the provider, and remembers nothing.

`plain_server.py PROVIDER-URL` prints where it is.
"""

import asyncio
import socket
import sys

import httpx
import uvicorn
from mcp.server.fastmcp import FastMCP

PROVIDER = sys.argv[1]
server = FastMCP("plain", stateless_http=True, json_response=True)


@server.tool(name="issue-refund")
async def issue_refund(return_id: str, reason: str) -> dict:
    """Refunds a return."""
    async with httpx.AsyncClient(base_url=PROVIDER, timeout=None) as http:
        found = (await http.get(f"/returns/{return_id}")).json()
        form = {"charge": found["charge"], "amount": found["amount"], "metadata[return]": return_id}
        made = await http.post("/v1/refunds", data={**form, "metadata[reason]": reason})
        return {"receipt": made.json()["id"]}


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    await uvicorn.Server(config).serve(sockets=[listener])


asyncio.run(main())
