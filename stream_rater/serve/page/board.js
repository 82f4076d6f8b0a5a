// A ladder: its leaderboard, the spread of its ratings, its latest rounds, climbers and upsets.

import { get } from "./api.js";
import { drawBars, sparkline } from "./charts.js";
import {
  at, badge, cell, count, day, linkTo, made, points, replaceIn, signed, textRow, tierClass, tierSpans,
} from "./dom.js";
import { showClimbers, showLatest, showUpsets } from "./rounds.js";
import { known, shown, still } from "./state.js";

const ROWS = 25;
const RECENT = 20;
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
  if (!still({ ladder, cursor, around })) return;
  at("board-percentile").hidden = page.rows.every((each) => each.percentile === undefined);
  at("board-tier").hidden = page.rows.every((each) => each.tier === undefined);
  const before = new Map([...at("board-rows").rows].map((row) => [row.dataset.player, row.dataset.rating]));
  replaceIn(at("board-rows"), ...page.rows.map((each) => boardRow(each, before)));
  at("board-caption").textContent = `${count(page.listed)} players on ${ladder}`;
  at("board-first").disabled = cursor === undefined && around === undefined;
  at("board-next").disabled = page.next === null;
  at("board-next").dataset.cursor = page.next ?? "";
}

function boardRow(found, before) {
  const { rank, player, rating, percentile, tier, previous_tier: previous, sigma, rounds, recent = [] } = found;
  const row = textRow(
    cell(count(rank), "number"), cell(linkTo(shown.ladder, player), "who"), cell(points(rating), "number strong"),
  );
  Object.assign(row.dataset, { player, rating });
  if (before.has(player) && before.get(player) !== String(rating)) row.className = "moved";
  if (player === shown.player) row.classList.add("chosen");
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

function lately(rating, recent) {
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
  at("board-others").textContent = others > 0
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
  at("spread-tiers").replaceChildren(...ranges.toReversed().map(([name, from]) => made(
    "li", "", badge(tiers, name), made("span", "soft", from === -Infinity ? "" : ` from ${points(from)}`),
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
