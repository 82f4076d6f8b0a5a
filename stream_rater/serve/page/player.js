// A player: numbers, the rating over time, why it is where it is, and the matches. Two players: both
// on one chart, and the chance that one beats the other.

import { get, post } from "./api.js";
import { drawCareer, drawTogether, partedBar } from "./charts.js";
import { addressOf, at, badge, cell, count, day, linkTo, made, points, replaceIn, setFacts, signed, textRow } from "./dom.js";
import { between, matchRow } from "./rounds.js";
import { known, shown, still } from "./state.js";

const CHANGES = 200;
const MATCHES = 20;
const MOST_MATCHES = 50;

/** Why a player is not listed, in words. */
function reason({ rule, value, bound }) {
  if (rule === "idle_days") return `not listed: ${value.toFixed(0)} days without a round`;
  if (rule === "max_sigma") return `not listed: ± ${points(value)} is more than ± ${points(bound)}`;
  return `${rule === "provisional" ? "provisional" : "not listed"}: ${value} of ${bound} rounds`;
}

const historyOf = (ladder, player) => get(["ladders", ladder, "players", player, "history"], { limit: CHANGES });

export async function showPlayer() {
  const { ladder, player, other } = shown;
  if (at("player-name").textContent !== player || other) at("player").hidden = true;
  if (!player || other) return;
  const [found, history, matches] = await Promise.all([
    get(["ladders", ladder, "players", player]),
    historyOf(ladder, player),
    get(["ladders", ladder, "rounds"], { player, limit: MATCHES }),
  ]);
  if (!still({ ladder, player, other })) return;
  at("player").hidden = false;
  if (at("player-name").textContent !== player) at("player-why").hidden = true;
  at("player-name").textContent = player;
  setFacts(at("player-facts"), {
    Rating: points(found.rating),
    Rank: found.rank === null ? reason(found.unlisted) : `${count(found.rank)} of ${count(found.listed)}`,
    "At least as good as": found.percentile === null ? "–" : `${found.percentile.toFixed(1)} %`,
    Skill: `${points(found.mu)} ± ${points(found.sigma)}`,
    ...(found.tier && { Tier: badge(known.tiers, found.tier) }),
    Rounds: count(found.rounds),
    "Last round": day(found.completed_at),
  });
  drawCareer(at("player-chart"), [...history.changes].reverse(), player, known.tiers);
  at("player-changes").tBodies[0].replaceChildren(...history.changes.map(changeRow));
  replaceIn(at("player-matches").tBodies[0], ...matches.rounds.map((each) => matchRow(ladder, player, each)));
  at("player-older").hidden = matches.next === null;
  at("player-older").dataset.before = matches.next ?? "";
  at("player-around").hidden = found.rank === null;
  at("player-close").href = addressOf(ladder);
}

/** Adds the matches before those that are shown. */
export async function showOlder() {
  const { ladder, player } = shown;
  const { rounds, next } = await get(
    ["ladders", ladder, "rounds"], { player, limit: MATCHES, before: at("player-older").dataset.before },
  );
  if (!still({ ladder, player })) return;
  at("player-matches").tBodies[0].append(...rounds.map((each) => matchRow(ladder, player, each)));
  at("player-older").hidden = next === null;
  at("player-older").dataset.before = next ?? "";
}

/** Which performances pull the rating where, in words. A process without beliefs says nothing. */
export async function showWhy() {
  const { ladder, player, other } = shown;
  if (!player || other) return;
  const found = await get(["ladders", ladder, "players", player, "explain"]).catch(() => null);
  if (!still({ ladder, player })) return;
  at("player-why").hidden = found === null;
  if (found) at("player-words").replaceChildren(...found.in_words.map((each) => made("li", "", each)));
}

function changeRow(change) {
  const cause = change.cause === "round-completed" ? `round ${change.round_id}` : change.cause;
  return textRow(
    cell(day(change.completed_at)), cell(cause), cell(change.rank ?? "–", "number"),
    cell(points(change.rating), "number"), cell(signed(change.rating - change.previous_rating), "number"),
  );
}

// --- two players ---

const percent = (share) => `${(100 * share).toFixed(0)} %`;

export async function showVersus() {
  const { ladder, player, other } = shown;
  if (!other) at("versus").hidden = true;
  if (!other) return;
  const pair = [player, other];
  const [chance, { players }, { rounds }, ...histories] = await Promise.all([
    post(["ladders", ladder, "predict"], { sides: pair.map((each) => ({ players: [each] })) }),
    post(["ladders", ladder, "players:lookup"], { players: pair }),
    get(["ladders", ladder, "rounds"], { player, limit: MOST_MATCHES }),
    ...pair.map((each) => historyOf(ladder, each)),
  ]);
  if (!still({ ladder, player, other })) return;
  at("versus").hidden = false;
  at("versus-name").textContent = `${player} and ${other}`;
  replaceIn(at("versus-names"), ...pair.flatMap((each, i) => [
    made("span", `key key-${i}`, linkTo(ladder, each), ` ${points(players[i].rating)} ± ${points(players[i].sigma)}`), " ",
  ]));
  const [first, second] = chance.sides.map((each) => each.win);
  at("versus-chance").textContent = `${player} beats ${other} with a chance of ${percent(first)}; `
    + `${other} beats ${player} with ${percent(second)}${chance.draw >= 0.005 ? `; they draw with ${percent(chance.draw)}` : ""}.`;
  at("versus-bar").replaceChildren(partedBar(
    [[first, "fill-0"], [chance.draw, "fill-draw"], [second, "fill-1"]], `${percent(first)} to ${percent(second)}`,
  ));
  const met = between(rounds, player, other);
  const total = met.reduce((sum, each) => sum + each, 0);
  at("versus-met").textContent = total
    ? `In the ${total} ${total === 1 ? "round" : "rounds"} of both that ${total === 1 ? "is" : "are"} kept, ${player} was ahead `
      + `${met[0]} times, ${other} ${met[2]} times${met[1] ? `, and they were level ${met[1]} times` : ""}.`
    : "No round of both is kept.";
  drawTogether(at("versus-chart"), pair.map((each, i) => [each, [...histories[i].changes].reverse()]), known.tiers);
  at("versus-close").href = addressOf(ladder, player);
}
