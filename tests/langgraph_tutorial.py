"""An agent in the shape of LangGraph's public quick start: a chatbot node, a tool node, and a condition between them. It knows nothing of gepa_lite."""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from typing_extensions import TypedDict

CUSTOMERS = {"refund": "customer since 2011", "praise": "customer since 2024"}


class State(TypedDict):
    """What the nodes share."""

    messages: Annotated[list[Any], add_messages]


@tool
def look_up(kind: str) -> str:
    """Look up the sender of a message of this kind."""
    return CUSTOMERS.get(kind, "unknown")


def build(**options: Any) -> Any:
    """The compiled graph; its model takes its endpoint from the environment, unless options say otherwise."""
    model = ChatOpenAI(model="gpt-4.1-mini", max_tokens=50, max_retries=0, **options).bind_tools([look_up])

    def chatbot(state: State) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(State)
    graph.add_node("chatbot", chatbot)
    graph.add_node("tools", ToolNode(tools=[look_up]))
    graph.add_edge(START, "chatbot")
    graph.add_conditional_edges("chatbot", tools_condition)
    graph.add_edge("tools", "chatbot")
    return graph.compile()


def ask(graph: Any, system: str, question: str) -> str:
    """The agent's last word."""
    state = graph.invoke({"messages": [("system", system), ("user", question)]})
    return str(state["messages"][-1].content)
