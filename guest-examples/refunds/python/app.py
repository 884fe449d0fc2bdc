"""Refunds one return, as the example in Rust does: the contract and the WIT text are the same."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.refunds import Refund
from wit_world.imports import effect, lookup
from wit_world.imports.types import Field, Response, Settlement, Value_Integer, Value_Text


class Refunds(exports.Refunds):
    def issue_refund(self, return_id: str, amount: int | None, reason: str) -> Refund:
        if get_return(return_id)["status"] == "refunded":
            raise Err(f"return {return_id} was refunded before")
        fields = [Field("reason", Value_Text(reason))]
        if amount is not None:  # Without one the host writes the amount on the return.
            fields.append(Field("amount", Value_Integer(amount)))
        answer = perform("create-refund", fields)
        made = json.loads(answer.body)
        if answer.settled == Settlement.NO_EFFECT:
            raise Err(made["error"]["message"])
        return Refund(made["id"], made["amount"], made["status"])


def get_return(return_id: str) -> dict:
    try:  # The host takes `id` from the tool's argument, as the contract says.
        answer = lookup.fetch("get-return", [])
    except Err as error:
        raise Err(f"the shop was not asked about return {return_id}: {error.value}") from error
    if answer.status != 200:
        raise Err(f"the shop answered {answer.status} about return {return_id}")
    return json.loads(answer.body)


def perform(operation: str, fields: list[Field]) -> Response:
    try:
        return effect.perform(operation, fields)
    except Err as error:
        raise Err(f"the refund was not made: {error.value}") from error
