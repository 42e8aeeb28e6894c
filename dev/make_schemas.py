"""Write the published JSON schemas: one file for each output, in the distribution that prints it.

What is a typed record in the code is described by its type; the rest is written down here. Fields may be added in a
later version, so no schema closes an object; a test closes them and holds real output against them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from pegboard import account, audit, events, sessions
from pegboard.call import EffectKind, EffectState, Retry, Status
from pegboard.candidate import Kind, Origin
from pegboard.cli import cost, rewinding
from pegboard.errors import Code, Stop
from pegboard.policy import Mode
from pegboard.provider import Usage

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "core/src/pegboard/schemas"
OTHERS = {
    "tasks-list": ROOT / "contrib/owners/tasks/src/pegboard_tasks/schemas",
    "agents-list": ROOT / "contrib/sources/agents/src/pegboard_agents/schemas",
}

Schema = dict[str, Any]
S: Schema = {"type": "string"}
I: Schema = {"type": "integer"}
N: Schema = {"type": "number"}
B: Schema = {"type": "boolean"}
ANY: Schema = {}
TABLE: Schema = {"type": "object"}


def obj(**fields: Any) -> Schema:
    """An object; a field given as a one-tuple may be missing."""
    properties = {name: one[0] if isinstance(one, tuple) else one for name, one in fields.items()}
    needed = [name for name, one in fields.items() if not isinstance(one, tuple)]
    return {"type": "object", "properties": properties, "required": needed}


def arr(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def maybe(one: Schema) -> Schema:
    return {"anyOf": [one, {"type": "null"}]}


def word(*words: Any) -> Schema:
    return {"enum": [str(one) for one in words]}


def mapping(of: Schema) -> Schema:
    return {"type": "object", "additionalProperties": of}


def typed(kind: Any) -> Schema:
    """The schema of a type of the code."""
    return msgspec.json.schema(kind)


BLOCK = {"type": "object", "properties": {"type": S}, "required": ["type"], "additionalProperties": True}
DECIDED = obj(by=S, source=(S,), reason=(S,))
EFFECT = obj(kind=word(*EffectKind), target=S, state=word(*EffectState), detail=S)
USAGE = obj(**dict.fromkeys(Usage.__struct_fields__, I))
DENIAL = {
    "tool_name": S, "tool_use_id": S, "tool_input": ANY, "code": word(*Code), "decision": maybe(DECIDED),
}  # fmt: skip
RULE = obj(id=S, rule=S, effect=word("allow", "ask", "deny"), scope=S, file=S, line=maybe(I))
VERDICT = word("allow", "ask", "deny")
SEGMENT = obj(kind=maybe(S), target=maybe(S), names=arr(S), verdict=VERDICT, decided_by=DECIDED, rules=arr(S))

# -- lines of a stream -------------------------------------------------------------------------------------------------

SUBTYPES = word(
    "success", "error_during_execution", "error_max_turns", "error_max_budget_usd",
    "error_max_structured_output_retries",
)  # fmt: skip
ENDS = word("completed", "provider_error", "max_structured_output_retries", *Stop)


def line(kind: str, /, **fields: Any) -> Schema:
    return obj(type={"const": kind}, session_id=S, **fields)


def system(subtype: str, /, **fields: Any) -> Schema:
    return line("system", subtype={"const": subtype}, **fields)


RESULT = line(
    "result", subtype=SUBTYPES, format=I, is_error=B, result=S, num_turns=I, duration_ms=I, duration_api_ms=I,
    total_cost_usd=maybe(N), usage=USAGE,
    modelUsage=mapping(obj(inputTokens=I, outputTokens=I, cacheReadInputTokens=I, cacheCreationInputTokens=I,
                           costUSD=maybe(N))),
    permission_denials=arr(obj(**DENIAL)), stop_reason=maybe(S), terminal_reason=ENDS, errors=(arr(S),),
    structured_output=(ANY,), deferred_tool_use=(obj(id=S, name=S, input=TABLE),),
)  # fmt: skip
INIT = system(
    "init", format=I, cwd=S, model=S, permissionMode=word(*Mode), tools=arr(S),
    mcp_servers=arr(obj(name=S, status=S)), agents=arr(S), skills=arr(S), plugins=arr(obj(name=S, version=S)),
    errors=arr(obj(name=S, kind=word(*Kind), error=S)), version=S, capabilities=arr(S),
)  # fmt: skip
MESSAGE = obj(
    id=S, type={"const": "message"}, role={"const": "assistant"}, model=S, content=arr(BLOCK), stop_reason=S,
    stop_sequence={"type": "null"}, usage=USAGE,
)  # fmt: skip
USED = obj(
    tool=S, outcome=word(*Status), code=maybe(word(*Code)), retry=word(*Retry), decision=maybe(DECIDED),
    effects=arr(EFFECT), attachments=arr(S), data=ANY,
)  # fmt: skip
TASK = {"task_id": S, "task_type": S, "description": S}
REQUESTS = word(
    "initialize", "interrupt", "set_permission_mode", "rewind_files", "mcp_reconnect", "mcp_toggle", "stop_task"
)
CAN_USE = obj(
    subtype={"const": "can_use_tool"}, tool_name=S, input=TABLE, tool_use_id=(S,),
    permission_suggestions=(arr(TABLE),), decision_reason=(S,), lines=(arr(S),), requires_user_interaction=(B,),
)  # fmt: skip
RESPONSE = {
    "oneOf": [
        obj(subtype={"const": "success"}, request_id=S, response=TABLE),
        obj(subtype={"const": "error"}, request_id=S, error=S),
    ]
}
UPDATE = obj(
    type=word("addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"),
    destination=word("session", "localSettings", "projectSettings", "userSettings"),
    rules=(arr(obj(toolName=S, ruleContent=(S,))),), behavior=(VERDICT,), mode=(S,), directories=(arr(S),),
)  # fmt: skip
PERMISSION = {
    "oneOf": [
        obj(behavior={"const": "allow"}, updatedInput=(TABLE,), updatedPermissions=(arr(UPDATE),)),
        obj(behavior={"const": "deny"}, message=(S,), interrupt=(B,)),
    ]
}
STREAM = [
    INIT,
    line("assistant", message=MESSAGE, parent_tool_use_id=maybe(S)),
    line(
        "user", message=obj(role={"const": "user"}, content=arr(BLOCK)), parent_tool_use_id=maybe(S),
        outcome=(word(*Status),), tool_use_result=(USED,), origin=(S,), author=(S,),
    ),
    line("stream_event", event=obj(type=S, index=I, delta=obj(type=S, text=(S,), thinking=(S,))),
         parent_tool_use_id=maybe(S)),
    system("api_retry", attempt=I, max_retries=I, retry_delay_ms=I, error_status=maybe(I), error=S),
    system("compact_boundary", compact_metadata=obj(trigger=word("manual", "auto"), pre_tokens=I)),
    system("notice", text=S, kind=S),
    system("permission_denied", **DENIAL),
    system(
        "hook_response", hook_id=S, hook_name=S, hook_event=S, outcome=S, exit_code=maybe(I), output=S, duration_ms=I
    ),
    system("task_started", **TASK),
    system("task_notification", **TASK, status=S, exit_code=maybe(I), output_file=S, summary=S),
    RESULT,
    obj(type={"const": "control_request"}, request_id=S, request=CAN_USE),
    obj(type={"const": "control_response"}, response=RESPONSE),
    obj(type={"const": "control_cancel_request"}, request_id=S),
]  # fmt: skip
INPUT = [
    obj(
        type={"const": "user"}, uuid=(S,),
        message=obj(role=({"const": "user"},), content={"anyOf": [S, arr(BLOCK)]}),
    ),
    obj(
        type={"const": "control_request"}, request_id=S,
        request=obj(subtype=REQUESTS, mode=(word(*Mode),), user_message_id=(S,), prompt=(I,), dry_run=(B,),
                    task_id=(S,), serverName=(S,)),
    ),
    obj(
        type={"const": "control_response"},
        response={
            "oneOf": [
                obj(subtype={"const": "success"}, request_id=S, response=PERMISSION),
                obj(subtype={"const": "error"}, request_id=S, error=(S,)),
            ]
        },
    ),
    obj(type={"const": "keep_alive"}),
]  # fmt: skip

# -- listings ----------------------------------------------------------------------------------------------------------

STATE = word("active", "refused", "broken")
TOOL = {
    "name": S, "state": STATE, "reason": S, "source": S, "summary": maybe(S), "load": maybe(S),
    "concurrency": maybe(S), "effects": maybe(arr(word(*EffectKind))), "origin": word(*Origin), "distribution": S,
    "version": S,
}  # fmt: skip
OFFER = obj(
    **TOOL, switches=arr(obj(scope=S, source=S, state=S)), trust=S, policy=S, conflict=S, needs=arr(S),
    aliases=arr(S), decided_by=S, decided_in=S,
)  # fmt: skip
PLUGIN = {
    "name": S, "kind": word(*Kind), "origin": word(*Origin), "where": S, "distribution": S, "version": S,
    "state": STATE, "question": S, "reason": S, "source": S,
}  # fmt: skip
ANSWER = obj(question=S, asks=S, objects=B, reason=S, source=S)
SETTING = {"key": S, "value": ANY, "scope": S, "source": maybe(S), "line": maybe(I)}
SAID = obj(scope=S, source=S, line=maybe(I), value=ANY, why_not=maybe(S))
LEFT = arr(obj(what=S, why=S))
EXPLAINED = obj(
    id=(ANY,), tool=S, installed=B, mode=S, verdict=VERDICT, headless=word("allow", "deny"), segment=maybe(S),
    decided_by=DECIDED, rule=maybe(RULE), losers=arr(RULE), accesses=arr(SEGMENT), problems=arr(S), trusted=(B,),
    void=(arr(RULE),), would_save=(obj(session=arr(S), always=arr(S)),),
)  # fmt: skip
FINDING = obj(kind=word("unusable", "misspelt", "not counting", "shadowed", "superfluous"), text=S, file=S,
              line=maybe(I))  # fmt: skip
STARTER = arr({"anyOf": [S, obj(rule=S, match=(arr(ANY),), not_match=(arr(ANY),), reason=(S,))]})

OUTPUTS: dict[str, tuple[str, Schema]] = {
    "stream": ("A line of --output-format stream-json", {"oneOf": STREAM}),
    "input": ("A line of --input-format stream-json", {"oneOf": INPUT}),
    "result": ("The object of --output-format json, and the last line of a stream", RESULT),
    "call": (
        "peg call, and each line of peg call --jsonl",
        obj(id=S, tool=S, is_error=B, outcome=word(*Status), code=maybe(word(*Code)), retry=word(*Retry),
            text={"anyOf": [S, arr(BLOCK)]}, data=ANY, decision=maybe(DECIDED), effects=arr(EFFECT),
            attachments=arr(S)),
    ),
    "agents-list": ("peg agents list --json", ANY),
    "audit-show": ("peg audit show --json", arr(ANY)),
    "audit-verify": (
        "peg audit verify --json",
        obj(ok=B, records=I, files=I, first=I, last=I, last_hash=S, skipped=arr(S), anchors=I,
            broken=maybe(obj(file=S, line=maybe(I), seq=I, id=maybe(S), reason=S))),
    ),
    "cost": ("peg cost --json", typed(cost.Bill)),
    "doctor": (
        "peg doctor --json",
        obj(ok=B, findings=arr(obj(level=word("ok", "note", "problem"), area=S, text=S))),
    ),
    "import": (
        "peg import --json",
        obj(source=S, dry_run=B, written=arr(S), plans=arr(obj(
            source=S, target=S, scope=S, same=arr(S), decide=LEFT, dropped=LEFT,
            mapped=arr({**obj(key=S, value=ANY, note=S, lines=arr(S), **{"from": S})}),
        ))),
    ),
    "plugins-list": ("peg plugins list --json", arr(obj(**PLUGIN))),
    "plugins-explain": ("peg plugins explain --json", arr(obj(**PLUGIN, digest=S, gate=arr(ANSWER)))),
    "policy-can": (
        "peg policy can --json",
        obj(mode=word(*Mode), tools=arr(obj(tool=S, installed=B, never=maybe(S), without_question=arr(S),
                                            allowed=arr(RULE), asked=arr(RULE), denied=arr(RULE)))),
    ),
    "policy-explain": ("peg policy explain --json", EXPLAINED),
    "policy-lint": ("peg policy lint --json", arr(FINDING)),
    "policy-list": (
        "peg policy list --json",
        arr(obj(**RULE["properties"], level=S, counts=B, why_not=maybe(S),
                loses_to=arr(obj(rule=maybe(RULE), reason=S, says_the_same=B)))),
    ),
    "policy-replay": (
        "peg policy replay --json",
        arr(obj(call=S, tool=S, target=S, then=word("allow", "ask", "deny", "refused"), then_by=maybe(DECIDED),
                now=EXPLAINED, changed=B)),
    ),
    "policy-starter": ("peg policy starter --json", obj(permissions=obj(allow=STARTER, ask=STARTER, deny=STARTER))),
    "policy-test": ("peg policy test --json", arr(obj(file=S, name=S, passed=B, reason=S))),
    "sandbox-status": (
        "peg sandbox status --json",
        obj(level=S, sandbox=maybe(S), reasons=arr(S), enabled=B, required=B, wanted=S, enough=B),
    ),
    "schema": ("peg schema --json", arr(obj(name=S, title=S))),
    "sessions-ledger": ("peg sessions ledger --json", typed(account.Account)),
    "sessions-list": ("peg sessions list --json", typed(list[sessions.Summary])),
    "sessions-points": ("peg sessions rewind --json, without a place to go to", typed(list[rewinding.Point])),
    "sessions-rewind": ("peg sessions rewind --json", typed(rewinding.Report)),
    "sessions-show": ("A line of peg sessions show --json, and of a transcript", typed(events.Record)),
    "settings-list": ("peg settings list --json", arr(obj(**SETTING))),
    "settings-get": ("peg settings get --json", obj(**SETTING)),
    "settings-set": ("peg settings set --json", obj(**SETTING, saved=S)),
    "settings-explain": (
        "peg settings explain --json",
        obj(**SETTING, summary=S, type=S, default=ANY, locked_by=maybe(S), used=arr(SAID), passed=arr(SAID)),
    ),
    "tasks-list": ("A line of peg tasks list --json", ANY),
    "tools-list": ("peg tools list --json", arr(obj(**TOOL))),
    "tools-explain": ("peg tools explain --json", obj(name=S, installed=B, offers=arr(OFFER))),
    "trust": (
        "peg trust --json",
        obj(root=S, trusted=B, would_activate=arr(obj(
            kind=S, what=S, source=S, why=(S,), covers=(mapping(S),), diff=(arr(S),)))),
    ),
    "trust-list": ("peg trust --list --json", arr(obj(root=S, at=S))),
}  # fmt: skip


def _late() -> dict[str, Schema]:
    """Schemas of records that other distributions define, and those of the decision log."""
    from pegboard_agents.definition import Definition
    from pegboard_tasks.runs import Run

    agents = typed(list[Definition])
    agents["$defs"]["Definition"]["properties"]["hidden_by"] = maybe(S)
    record = typed(audit.Record)
    fields = record["$defs"]["Record"]
    fields["properties"]["hash"] = S
    logged = {"type": "array", "items": {"$ref": "#/$defs/Record"}, "$defs": record["$defs"]}
    return {"agents-list": agents, "tasks-list": typed(Run), "audit-show": logged}


def generated() -> dict[Path, str]:
    """The text of every schema by its file."""
    late = _late()
    found = {}
    for name, (title, schema) in OUTPUTS.items():
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
        text = json.dumps({**head, **late.get(name, schema)}, indent=1, ensure_ascii=False) + "\n"
        found[OTHERS.get(name, CORE) / f"{name}.json"] = text
    return found


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
