// Judges pages by axe-core, in two widths and two languages: node axe.mjs BASE PATHS DIRECTORY
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const axe = createRequire(import.meta.url).resolve("axe-core");
const [base, paths, directory] = [process.argv[2], JSON.parse(process.argv[3]), process.argv[4]];
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
});
const found = [];
for (const [page, path] of Object.entries(paths)) {
  for (const language of ["en", "fr"]) {
    for (const width of [360, 1600]) {
      const name = `${page}-${language}-${width}`;
      const tab = await browser.newPage();
      // Our pages let no script in; the judge comes in all the same.
      await tab.setBypassCSP(true);
      await tab.setExtraHTTPHeaders({ "Accept-Language": language });
      await tab.setViewport({ width, height: 800 });
      await tab.goto(base + path, { waitUntil: "networkidle0" });
      await tab.screenshot({ path: `${directory}/${name}.png`, fullPage: !(await tab.$("#page")) });
      await tab.addScriptTag({ path: axe });
      const faults = await tab.evaluate(async () => {
        // What is archived in the frame is not ours to judge.
        const { violations } = await window.axe.run({ exclude: [["#page"]] });
        const told = violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html).join(" ").slice(0, 300)}`);
        const { scrollWidth } = document.documentElement;
        if (scrollWidth > window.innerWidth) told.push(`wider than the screen: ${scrollWidth} of ${window.innerWidth}`);
        return told;
      });
      if ((await tab.$eval("html", (html) => html.lang)) !== language) faults.push("in another language");
      found.push({ name, faults });
      await tab.close();
    }
  }
}
await browser.close();
console.log(JSON.stringify(found));
