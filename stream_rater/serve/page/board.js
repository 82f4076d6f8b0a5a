// A ladder: its leaderboard, the spread of its ratings, its latest rounds, climbers and upsets.

import { get, post } from "./api.js";
import { drawBars, sparkline } from "./charts.js";
import {
  at, badge, cell, count, day, kept, linkTo, made, points, pointsIn, replaceIn, signed, textRow, tierClass, tierSpans,
} from "./dom.js";
import { showClimbers, showLatest, showUpsets } from "./rounds.js";
import { known, shown, still } from "./state.js";

const ROWS = 25;
export const RECENT = 20;
const ROUNDS = 50;
const LATEST = 6;
const WEEK_MS = 7 * 86_400_000;

export async function showBoard() {
  const { ladder, cursor, around } = shown;
  let page;
  try {
    page = await get(["ladders", ladder, "leaderboard"], { limit: ROWS, cursor, around, recent: RECENT });
  } catch (error) {
    if (around === undefined || !["not-listed", "unknown-player"].includes(error.code)) throw error;
    shown.around = undefined; // the player has left the list
    return showBoard();
  }
  const { rows, why } = page.listed ? page : await unlistedOf(ladder, ROWS);
  if (!still({ ladder, cursor, around })) return;
  at("board-percentile").hidden = rows.every((each) => each.percentile === undefined);
  at("board-tier").hidden = rows.every((each) => each.tier === undefined);
  const before = new Map([...at("board-rows").rows].map((row) => [row.dataset.player, row.dataset.rating]));
  replaceIn(at("board-rows"), ...rows.map((each) => boardRow(each, before)));
  at("board-caption").textContent = page.listed
    ? `${count(page.listed)} listed ${page.listed === 1 ? "player" : "players"} on ${ladder}`
    : `Nobody on ${ladder} is listed. ${why}${rows.length ? " These played last." : ""}`;
  at("board-first").disabled = cursor === undefined && around === undefined;
  at("board-next").disabled = page.next === null;
  at("board-next").dataset.cursor = page.next ?? "";
}

/** Of a ladder that lists nobody: the players of the last rounds as rows, and how one comes to be listed. */
export async function unlistedOf(ladder, most) {
  const [{ listing }, rounds] = await Promise.all([get(["ladders", ladder]), lastRounds(ladder)]);
  const hides = (name) => listing.unlisted.some(
    (each) => (each.endsWith("*") ? name.startsWith(each.slice(0, -1)) : name === each),
  );
  const recent = new Map();
  for (const [, { completed_at, players }] of rounds) {
    for (const { player, rank, rating } of players) {
      if (!hides(player)) recent.set(player, [{ completed_at, rank, rating }, ...(recent.get(player) ?? [])]);
    }
  }
  const names = [...recent.keys()].slice(0, most);
  if (!names.length) return { rows: [], why: "" };
  const { players } = await post(["ladders", ladder, "players:lookup"], { players: names });
  const rows = players.filter((each) => each.rounds).sort((a, b) => b.rating - a.rating).map(
    (each) => ({ ...each, rank: null, recent: recent.get(each.player).slice(-RECENT) }),
  );
  if (!rows.length) return { rows, why: "" };
  const { player, unlisted } = await get(["ladders", ladder, "players", rows[0].player]);
  return { rows, why: unlisted ? comesToBeListed(player, unlisted) : "" };
}

function comesToBeListed(player, { rule, value, bound }) {
  if (rule === "idle_days") return `A player leaves the list after ${bound} days without a round, as ${player} did.`;
  if (rule === "max_sigma") return `A player is listed at ± ${points(bound)} or less; ${player} has ± ${points(value)}.`;
  return `A player is listed after ${count(bound)} rounds; ${player} has ${count(value)}.`;
}

function boardRow(found, before) {
  const { rank, player, rating, percentile, tier, previous_tier: previous, sigma, rounds, recent = [] } = found;
  const row = textRow(
    cell(rank === null ? "–" : count(rank), "number"), cell(linkTo(shown.ladder, player), "who"),
    cell(pointsIn(known.tiers, rating), "number strong"),
  );
  Object.assign(row.dataset, { player, rating });
  if (before.has(player) && before.get(player) !== String(rating)) row.className = "moved";
  if (player === shown.player) row.classList.add("chosen");
  if (rank === null) row.classList.add("unlisted");
  if (tier !== undefined) row.append(tierCell(tier, previous));
  if (percentile !== undefined) row.append(cell(`${percentile.toFixed(1)} %`, "number"));
  const ranked = recent.filter((each) => each.rank !== null);
  const won = ranked.filter((each) => each.rank === 1).length;
  row.append(
    cell(sigma === undefined ? "–" : `± ${points(sigma)}`, "number wide soft"),
    cell(weekly(rating, recent), "number week"),
    cell(rounds === undefined ? "–" : count(rounds), "number wide"),
    cell(ranked.length ? `${Math.round((100 * won) / ranked.length)} %` : "–", "number wide"),
    cell(lately(rating, recent), "wide"),
  );
  return row;
}

/** A small line of a player's last ratings. */
export function lately(rating, recent) {
  if (recent.length < 2) return "";
  return sparkline(recent.map((each) => each.rating), `from ${points(recent[0].rating)} to ${points(rating)}`);
}

/** The change in the last week before the ladder's newest round, as far as it is kept. */
function weekly(rating, recent) {
  if (!recent.length) return "–";
  const since = (known.newest ? Date.parse(known.newest) : Date.now()) - WEEK_MS;
  const base = recent.findLast((each) => Date.parse(each.completed_at) <= since) ?? recent[0];
  return signed(rating - base.rating, `since ${day(base.completed_at)}`);
}

function tierCell(tier, previous) {
  const names = known.tiers.map((each) => each.name);
  const found = cell(tier ? badge(known.tiers, tier) : "–", "of-tier");
  const step = names.indexOf(tier) - names.indexOf(previous);
  if (tier && previous && step) {
    const sign = made("span", step > 0 ? "up" : "down", step > 0 ? "▲" : "▼");
    sign.setAttribute("role", "img");
    sign.setAttribute("aria-label", `${step > 0 ? "promoted" : "demoted"} from ${previous}`);
    found.append("\u00a0", sign);
  }
  return found;
}

/** The ladder as a whole. Returns whether its tiers are other ones than were known. */
export async function showSpread() {
  const { ladder } = shown;
  const { distribution, listed, players: all, tiers, completed_at: newest } = await get(["ladders", ladder]);
  if (!still({ ladder })) return false;
  const others = all - listed;
  at("board-others").textContent = listed && others > 0
    ? `${count(others)} more ${others === 1 ? "player is" : "players are"} not listed. Look one up by name, to see why.`
    : "";
  const news = JSON.stringify(tiers) !== JSON.stringify(known.tiers);
  Object.assign(known, { tiers, newest });
  const spans = filled(distribution);
  const ranges = tierSpans(tiers);
  const tierOf = (low) => ranges.find(([, from, to]) => low >= from && low < to)?.[0];
  drawBars(
    at("spread-chart"),
    spans.map(([low, high, players]) => [
      players, `${low} to ${high}: ${players}`, tierOf(low) === undefined ? "" : tierClass(tiers, tierOf(low)),
    ]),
    spans.length ? [String(spans[0][0]), String(spans.at(-1)[1])] : [],
    `Ratings of ${listed} listed players`,
  );
  at("spread-table").tBodies[0].replaceChildren(...spans.map(
    ([low, high, players]) => textRow(cell(`${low} to ${high}`), cell(count(players), "number")),
  ));
  at("spread-tiers").replaceChildren(...tiers.toReversed().map((each) => made(
    "li", "", badge(tiers, each.name),
    made("span", "soft", each.from === null ? "" : ` from ${points(each.from)}${kept(each)}`),
  )));
  return news;
}

/** The bins with those between that have nobody. */
function filled(bins) {
  const found = [];
  for (const { at_least: low, below, players } of bins) {
    for (let from = found.at(-1)?.[1] ?? low; from < low; from += below - low) {
      found.push([from, from + below - low, 0]);
    }
    found.push([low, below, players]);
  }
  return found;
}

/** The last rounds of a ladder, as `showLatest` takes them. */
export async function lastRounds(ladder) {
  const { rounds } = await get(["ladders", ladder, "rounds"], { limit: ROUNDS });
  return rounds.map((each) => [ladder, each]);
}

export async function showNews() {
  const { ladder } = shown;
  const rounds = await lastRounds(ladder);
  if (!still({ ladder })) return;
  showLatest(at("news-latest"), rounds.slice(0, LATEST));
  showClimbers(at("news-climbers"), rounds);
  showUpsets(at("news-upsets"), rounds);
}
