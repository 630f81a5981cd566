// Both kinds of modules: the nearest package.json says which one the compiler makes, and which one Node reads.
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";

for (const [kind, type] of [["esm", "module"], ["cjs", "commonjs"]]) {
  writeFileSync("src/package.json", JSON.stringify({ type }));
  execFileSync("node_modules/.bin/tsc", ["--outDir", `dist/${kind}`], { stdio: "inherit" });
  writeFileSync(`dist/${kind}/package.json`, JSON.stringify({ type }));
}
rmSync("src/package.json");
