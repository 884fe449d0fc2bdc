// Refunds one return, as the example in Rust does: the contract and the WIT text are the same.
import { perform } from "oncegate:effect/effect@0.1.0";
import { fetch } from "oncegate:effect/lookup@0.1.0";

export const refunds = {
  issueRefund(returnId, amount, reason) {
    if (getReturn(returnId).status === "refunded") throw `return ${returnId} was refunded before`;
    const fields = [{ name: "reason", value: { tag: "text", val: reason } }];
    // Without one the host writes the amount on the return.
    if (amount != null) fields.push({ name: "amount", value: { tag: "integer", val: amount } });
    const answer = perform("create-refund", fields);
    const made = json(answer);
    if (answer.settled === "no-effect") throw made.error.message;
    return { id: made.id, amount: made.amount, status: made.status };
  },
};

// The host takes `id` from the tool's argument, as the contract says.
function getReturn(returnId) {
  const answer = fetch("get-return", []);
  if (answer.status !== 200) throw `the shop answered ${answer.status} about return ${returnId}`;
  return json(answer);
}

// QuickJS has no TextDecoder: the bytes become escapes, which are read as UTF-8.
const json = (answer) => JSON.parse(decodeURIComponent(escape(String.fromCharCode(...answer.body))));
