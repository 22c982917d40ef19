"""What GitOps tools do to an LLMService, with their own code: Flux's patches and waits, kstatus, and Argo CD's Lua."""

from llmservice_testing.gitops.lua import GopherLua, Interpreter, LuaError, LuaNotFoundError, RealLua, find_lua
from llmservice_testing.gitops.program import GitOps, GitOpsError, Verdict, ensure_built

__all__ = [
    "GitOps",
    "GitOpsError",
    "GopherLua",
    "Interpreter",
    "LuaError",
    "LuaNotFoundError",
    "RealLua",
    "Verdict",
    "ensure_built",
    "find_lua",
]
