// The start: all ladders with their best players, and what has happened lately on any of them.

import { get } from "./api.js";
import { addressOf, ago, at, count, linkTo, made, points, replaceIn } from "./dom.js";
import { lastRounds } from "./board.js";
import { showClimbers, showLatest, showUpsets } from "./rounds.js";
import { shown } from "./state.js";

const MOST_ASKED = 12; // The most ladders that are asked about.
const MOST_SHOWN = 6; // The most ladders with a card; the others have a link.
const BEST = 3;
const LATEST = 8;

export async function showStart() {
  if (shown.ladder) return;
  const { ladders } = await get(["ladders"]);
  const asked = await Promise.all(ladders.slice(0, MOST_ASKED).map((each) => get(["ladders", each])));
  asked.sort((a, b) => Date.parse(b.completed_at) - Date.parse(a.completed_at));
  const newest = asked.slice(0, MOST_SHOWN);
  const [boards, rounds] = await Promise.all([
    Promise.all(newest.map(({ ladder }) => get(["ladders", ladder, "leaderboard"], { limit: BEST }))),
    Promise.all(newest.map(({ ladder }) => lastRounds(ladder))),
  ]);
  if (shown.ladder) return;
  at("start-none").hidden = ladders.length > 0;
  replaceIn(at("start-ladders"), ...newest.map((each, i) => card(each, boards[i].rows)));
  const others = ladders.filter((each) => !newest.some(({ ladder }) => ladder === each));
  at("start-others").hidden = !others.length;
  replaceIn(at("start-others"), "More ladders: ", ...others.flatMap((each, i) => [i ? ", " : "", toLadder(each)]));
  const all = rounds.flat().sort(([, a], [, b]) => Date.parse(b.completed_at) - Date.parse(a.completed_at));
  const many = newest.length > 1;
  showLatest(at("start-latest"), all.slice(0, LATEST), many);
  showClimbers(at("start-climbers"), all, many);
  showUpsets(at("start-upsets"), all, many);
}

function toLadder(ladder) {
  const found = made("a", "", ladder);
  found.href = addressOf(ladder);
  return found;
}

function card({ ladder, players, completed_at: time }, best) {
  return made("article", "card",
    made("h3", "", toLadder(ladder)),
    made("p", "soft", `${count(players)} ${players === 1 ? "player" : "players"}, last round `, ago(time)),
    made("ol", "", ...best.map(({ player, rating }) => made("li", "", linkTo(ladder, player), ` ${points(rating)}`))),
  );
}
