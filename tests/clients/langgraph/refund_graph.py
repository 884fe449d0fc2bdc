"""A LangGraph agent whose tool calls happen once."""

from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

SERVERS = {
    "refunds": {
        "transport": "stdio",
        "command": "oncegate",
        "args": ["serve", "refunds.wasm", "--context", "tenant=acme"],
        # Nothing else of this program's environment reaches the server.
        "env": {"ONCEGATE_HOME": "${ONCEGATE_HOME}", "PAY_KEY": "${PAY_KEY}"},
    }
}


async def refund_graph(model, checkpointer=None, servers=SERVERS):
    tools = await MultiServerMCPClient(servers).get_tools()
    model = model.bind_tools(tools)

    async def ask(state: MessagesState):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=checkpointer)
