// Reports a round by HTTP, and waits for its ratings. It needs Node 18 or newer, and no package.
//
// RATER_URL and RATER_TOKEN name the API of `stream-rater serve`, and its token for writing.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.RATER_URL ?? "http://127.0.0.1:9109";
const headers = {
  "Authorization": `Bearer ${process.env.RATER_TOKEN}`,
  "Content-Type": "application/json",
};

// Sends a round until it is stored for good. The same `round_id` counts once.
async function report(ladder, finished) {
  const deadline = Date.now() + 60_000;
  while (true) {
    try {
      const answer = await fetch(`${url}/v1/ladders/${encodeURIComponent(ladder)}/rounds`, {
        method: "POST", headers, body: JSON.stringify(finished), signal: AbortSignal.timeout(40_000),
      });
      const body = await answer.json();
      if (answer.status === 202) return body;
      if (![429, 503].includes(answer.status) || Date.now() > deadline) {
        console.error("refused:", body);
        process.exit(1);
      }
      await sleep(1000 * Number(answer.headers.get("Retry-After") ?? 1));
    } catch (error) { // no answer: it may be stored or not
      if (Date.now() > deadline) throw error;
      await sleep(1000);
    }
  }
}

const finished = {
  round_id: randomUUID(), completed_at: new Date().toISOString(),
  standings: [{ player: "ann", rank: 1 }, { player: "bob", rank: 2 }],
};
await report("duel", finished);
let state = { state: "pending" };
while (state.state === "pending") {
  const answer = await fetch(`${url}/v1/ladders/duel/rounds/${finished.round_id}?wait=30`, { headers });
  if (!answer.ok) throw new Error(await answer.text());
  state = await answer.json();
}
console.log(state.state);
for (const change of state.changes) {
  console.log(change.player, change.previous_rating, "->", change.rating);
}
