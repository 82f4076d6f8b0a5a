// What the page shows, and what it knows about the ladder. The address has the first three:
// #/ is the start, then #/LADDER, #/LADDER/PLAYER, #/LADDER/PLAYER/OTHER.

export const shown = { ladder: "", player: "", other: "", cursor: undefined, around: undefined };

/** The tiers from the lowest to the highest, and the time of the newest change. */
export const known = { tiers: [], newest: undefined };

/** Whether the page still shows these. Answers that come too late are dropped. */
export const still = (asked) => Object.entries(asked).every(([name, value]) => shown[name] === value);
