// Reads deploy/asyncapi.yaml by AsyncAPI's own parser: `make contract-check`.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const WARNING = 1; // 0 is an error; beyond are hints, as that there is a newer AsyncAPI

const [folder, path] = process.argv.slice(2);
const { Parser } = createRequire(`${folder}/`)("@asyncapi/parser");
const { document, diagnostics } = await new Parser().parse(readFileSync(path, "utf8"));
const wrong = diagnostics.filter((each) => each.severity <= WARNING);
for (const each of wrong) console.error(`${each.path.join(".")}: ${each.message}`);
if (!document || wrong.length) process.exit(1);
console.error(`${path}: ${document.operations().all().map((each) => each.id()).join(", ")}`);
