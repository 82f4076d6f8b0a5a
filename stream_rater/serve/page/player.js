// A player: numbers, the rating over time, why it is where it is, and the matches. Two players: both
// on one chart, and the chance that one beats the other.

import { get, post } from "./api.js";
import { drawCareer, drawTogether, partedBar } from "./charts.js";
import {
  addressOf, at, badge, cell, count, day, kept, linkTo, made, points, pointsIn, replaceIn, setFacts, signed, textRow,
} from "./dom.js";
import { between, matchRow, swings } from "./rounds.js";
import { known, shown, still } from "./state.js";

const CHANGES = 200;
const MATCHES = 20;
const MOST_MATCHES = 50;

/** Why a player is not listed, in words. */
function reason({ rule, value, bound }) {
  if (rule === "unlisted") return "not listed";
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
  at("player-name").textContent = player;
  setFacts(at("player-facts"), {
    Rating: pointsIn(known.tiers, found.rating),
    Rank: found.rank === null ? reason(found.unlisted) : `${count(found.rank)} of ${count(found.listed)}`,
    "At least as good as": found.percentile === null ? "–" : `${found.percentile.toFixed(1)} %`,
    Skill: `${points(found.mu)} ± ${points(found.sigma)}`,
    ...(found.tier && { Tier: tierOf(found) }),
    Rounds: count(found.rounds),
    "Last round": day(found.completed_at),
  });
  drawCareer(at("player-chart"), [...history.changes].reverse(), player, known.tiers);
  at("player-changes").tBodies[0].replaceChildren(...history.changes.map(changeRow));
  replaceIn(at("player-matches").tBodies[0], ...matches.rounds.map((each) => matchRow(ladder, player, each)));
  at("player-why").hidden = !matches.rounds.length;
  replaceIn(at("player-lately"), ...swings(ladder, player, matches.rounds));
  at("player-older").hidden = matches.next === null;
  at("player-older").dataset.before = matches.next ?? "";
  at("player-around").hidden = found.rank === null;
  showCard(ladder, player);
  at("player-close").href = addressOf(ladder);
}

/** A player's tier, and how long it is kept if the rating is below it. */
function tierOf({ tier, rating }) {
  const own = known.tiers.find((each) => each.name === tier);
  return made("span", "", badge(known.tiers, tier), own && rating < own.from ? kept(own) : "");
}

/** The picture of a player for other sites, and the markup that shows it there. */
function showCard(ladder, player) {
  const picture = made("img", "");
  picture.src = new URL(["card", ladder, player].map(encodeURIComponent).join("/"), document.baseURI);
  picture.alt = `${player} on ${ladder}`;
  [at("card").src, at("card").alt, at("card-code").textContent] = [picture.src, picture.alt, picture.outerHTML];
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
  const about = addressOf(ladder, player);
  if (at("player-words").dataset.about !== about) at("player-words").replaceChildren();
  at("player-words").dataset.about = about;
  const found = await get(["ladders", ladder, "players", player, "explain"]).catch(() => null);
  if (!found || !still({ ladder, player })) return;
  at("player-words").replaceChildren(...found.in_words.map((each) => made("li", "", each)));
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
    made("span", `key key-${i}`, linkTo(ladder, each),
      ` ${points(players[i].rating)} ± ${points(players[i].sigma)}`), " ",
  ]));
  const [first, second] = chance.sides.map((each) => each.win);
  const draw = chance.draw >= 0.005 ? `; they draw with ${percent(chance.draw)}` : "";
  at("versus-chance").textContent = `${player} beats ${other} with a chance of ${percent(first)}; `
    + `${other} beats ${player} with ${percent(second)}${draw}.`;
  at("versus-bar").replaceChildren(partedBar(
    [[first, "fill-0"], [chance.draw, "fill-draw"], [second, "fill-1"]], `${percent(first)} to ${percent(second)}`,
  ));
  const met = between(rounds, player, other);
  const total = met.reduce((sum, each) => sum + each, 0);
  at("versus-met").textContent = total
    ? `Of ${total} ${total === 1 ? "round" : "rounds"} of both, ${player} was ahead in ${met[0]}, ${other} in ${met[2]}`
      + `${met[1] ? `, and they were level in ${met[1]}` : ""}.`
    : "No round of both is kept.";
  const lines = pair.map((each, i) => [each, [...histories[i].changes].reverse()]);
  drawTogether(at("versus-chart"), lines, known.tiers);
  at("versus-close").href = addressOf(ladder, player);
}
