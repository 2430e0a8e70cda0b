// Shows pages in Chromium and takes their pictures: node shots.mjs WANTED.json ANSWERS.json
//
// Of a page in the frame of `ecluse serve` the picture is that of the frame, which is as large as the window of a live page.
import fs from "node:fs";
import puppeteer from "puppeteer-core";

const [wanted, answers] = [JSON.parse(fs.readFileSync(process.argv[2])), []];
const size = { width: 1000, height: 1200 };
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--force-device-scale-factor=1", "--disable-lcd-text"],
});
// How high the banner above a frame is. A window that changes its size later would choose other pictures of a srcset.
let above = 0;

async function open(address) {
  const page = await browser.newPage();
  page.on("response", (answer) => answers.push({ status: answer.status(), url: answer.url() }));
  await page.setViewport({ width: size.width, height: size.height + above });
  await page.goto(address, { waitUntil: "networkidle0", timeout: 120000 });
  const frame = await page.$("#page");
  const y = frame ? (await frame.boundingBox()).y : 0;
  if (Math.ceil(y) === above) return { page, y };
  above = Math.ceil(y);
  await page.close();
  return open(address);
}

for (const { address, picture } of wanted) {
  const { page, y } = await open(address);
  for (const one of page.frames()) {
    // Fonts and films come after all else.
    await one.evaluate(async () => {
      await document.fonts.ready;
      const films = Array.from(document.querySelectorAll("video")).filter((film) => film.readyState < 2 && !film.error);
      await Promise.race([Promise.all(films.map((film) => new Promise((done) => {
        film.addEventListener("loadeddata", done);
        film.addEventListener("error", done);
      }))), new Promise((done) => setTimeout(done, 5000))]);
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    });
  }
  await page.screenshot({ path: picture, clip: { x: 0, y, ...size } });
  await page.close();
}
await browser.close();
fs.writeFileSync(process.argv[3], JSON.stringify(answers));
