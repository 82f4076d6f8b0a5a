// The start: all ladders with their best players, and what has happened lately on any of them.

import { get } from "./api.js";
import { ago, at, count, linkTo, made, pointsIn, replaceIn } from "./dom.js";
import { RECENT, lastRounds, lately, unlistedOf } from "./board.js";
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
  asked.sort((a, b) => b.players - a.players || (a.ladder < b.ladder ? -1 : 1));
  const largest = asked.slice(0, MOST_SHOWN);
  const [boards, rounds] = await Promise.all([
    Promise.all(largest.map(({ ladder, listed }) => (listed
      ? get(["ladders", ladder, "leaderboard"], { limit: BEST, recent: RECENT }) : unlistedOf(ladder, BEST)))),
    Promise.all(largest.map(({ ladder }) => lastRounds(ladder))),
  ]);
  if (shown.ladder) return;
  at("start-none").hidden = ladders.length > 0;
  replaceIn(at("start-ladders"), ...largest.map((each, i) => card(each, boards[i])));
  const others = ladders.filter((each) => !largest.some(({ ladder }) => ladder === each));
  at("start-others").hidden = !others.length;
  replaceIn(at("start-others"), "More ladders: ", ...others.flatMap((each, i) => [i ? ", " : "", linkTo(each)]));
  const all = rounds.flat().sort(([, a], [, b]) => Date.parse(b.completed_at) - Date.parse(a.completed_at));
  const many = largest.length > 1;
  showLatest(at("start-latest"), all.slice(0, LATEST), many);
  showClimbers(at("start-climbers"), all, many);
  showUpsets(at("start-upsets"), all, many);
}

/** A ladder with its best players, or the last ones and why nobody is listed. */
function card({ ladder, listed, players, tiers, completed_at: time }, { rows, why }) {
  return made("article", "card",
    made("h3", "", linkTo(ladder)),
    made("p", "soft", `${count(listed)} of ${count(players)} ${players === 1 ? "player" : "players"} listed, last round `,
      ago(time)),
    made(listed ? "ol" : "ul", listed ? "" : "unlisted", ...rows.map(({ player, rating, recent }) => made("li", "",
      made("span", "best", linkTo(ladder, player), made("span", "number", pointsIn(tiers, rating)), lately(rating, recent)),
    ))),
    ...(why ? [made("p", "soft", why)] : []),
  );
}
