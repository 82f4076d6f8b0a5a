// Past seasons: which one is chosen, and a page of its final standings.

import { get } from "./api.js";
import { at, cell, day, linkTo, textRow } from "./dom.js";

const ROWS = 25;

const chosen = { ladder: "", season: undefined, cursor: undefined };
let drawn = "";

/** Shows the seasons of a ladder whose standings are kept, and the standings of the chosen one. */
export async function showSeasons(ladder) {
  if (ladder !== chosen.ladder) Object.assign(chosen, { ladder, season: undefined, cursor: undefined });
  const { seasons } = await get(["ladders", ladder, "seasons"]);
  if (ladder !== chosen.ladder) return;
  const kept = seasons.filter((each) => each.standings === "kept").reverse();
  at("past").hidden = !kept.length;
  if (!kept.length) return;
  chosen.season ??= String(kept[0].season);
  const select = at("past-season");
  const names = kept.map(nameOf);
  if (String(names) !== String([...select.options].map((each) => each.text))) {
    select.replaceChildren(...kept.map((each, i) => new Option(names[i], each.season)));
  }
  select.value = chosen.season;
  await showStandings();
}

/** Chooses a season and a page of its standings. */
export function chooseSeason(season, cursor) {
  Object.assign(chosen, { season, cursor });
}

function nameOf({ season, ended_at }) {
  return `${season ? `Season ${season}` : "Before the first season"}, until ${day(ended_at)}`;
}

async function showStandings() {
  const { ladder, season, cursor } = chosen;
  const asked = JSON.stringify([ladder, season, cursor]);
  if (asked === drawn) return; // they are final
  const page = await get(
    ["ladders", ladder, "seasons", season, "leaderboard"], { limit: ROWS, cursor },
  );
  if (asked !== JSON.stringify([chosen.ladder, chosen.season, chosen.cursor])) return;
  drawn = asked;
  const tiers = page.rows.some((each) => each.tier !== null);
  at("past-tier").hidden = !tiers;
  at("past-rows").replaceChildren(...page.rows.map((each) => row(ladder, each, tiers)));
  at("past-caption").textContent = `${page.listed.toLocaleString("en")} players, final standings`;
  at("past-first").disabled = cursor === undefined;
  at("past-next").disabled = page.next === null;
  at("past-next").dataset.cursor = page.next ?? "";
}

function row(ladder, { rank, player, rating, tier, rounds }, tiers) {
  const found = textRow(cell(rank.toLocaleString("en"), "number"), cell(linkTo(ladder, player)));
  if (tiers) found.append(cell(tier ?? "–"));
  found.append(cell(rating.toFixed(0), "number"), cell(rounds.toLocaleString("en"), "number"));
  return found;
}
