"""The messages that the agent answers, by its source."""

from __future__ import annotations

import ast
import inspect

from orchestrator.agents.agent import ops


def agent_messages() -> set[str]:
    """Return the names of the entries of `Agent.ops`, and "bye"."""
    tables = [
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(ops)))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute) and node.target.attr == "ops"
    ]
    (table,) = tables
    assert isinstance(table, ast.Dict)
    return {"bye", *(key.value for key in table.keys if isinstance(key, ast.Constant))}
