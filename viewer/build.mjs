// Builds the page: one file with style and script in it, a policy that allows just these, and a record of the sources.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url)), target = join(here, "..", "nngrad", "inspection", "viewing", "page");
const result = await build({
  entryPoints: [join(here, "src", "main.ts")], bundle: true, minify: true, write: false, format: "iife",
  target: "es2022", charset: "ascii", legalComments: "none", absWorkingDir: here,
});
const script = result.outputFiles[0].text.trim().replaceAll("</script", "<\\/script");
const style = readFileSync(join(here, "style.css"), "utf8").trim();
const digest = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = `default-src 'none'; script-src ${digest(script)}; style-src ${digest(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'`;
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const licences = ["@dagrejs/dagre", "@dagrejs/graphlib"].map((name) => (
  `${name}\n\n${readFileSync(join(here, "node_modules", name, "LICENSE"), "utf8").trim()}`)).join("\n\n\n");
const parts = { POLICY: policy, STYLE: style, SCRIPT: script, LICENCES: escaped(licences) };
const page = readFileSync(join(here, "index.html"), "utf8").replace(/@(POLICY|STYLE|SCRIPT|LICENCES)@/g, (_, name) => parts[name]);

const sources = readdirSync(here, { recursive: true, withFileTypes: true })
  .filter((file) => file.isFile()).map((file) => relative(here, join(file.parentPath ?? file.path, file.name)).split(sep))
  .filter((parts) => !parts.some((part) => part === "node_modules" || part === "dist" || part.startsWith(".")))
  .map((parts) => parts.join("/")).sort((a, b) => (a < b ? -1 : 1));
const record = createHash("sha256");
for (const name of sources) record.update(name).update("\0").update(readFileSync(join(here, name))).update("\0");

mkdirSync(target, { recursive: true });
writeFileSync(join(target, "template.html"), page);
writeFileSync(join(target, "sources.sha256"), `${record.digest("hex")}\n`);
console.log(`${(page.length / 1024).toFixed(0)} KiB`);
