// The dashboard, by clicks and keys, with sessions of all kinds.
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { get } from 'node:http';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { suiteBrowser } from './support/browser.js';
import { Dashboard, fake, NO_UPGRADE } from './support/dashboard.js';
import { startGame } from './support/game.js';
import { startGateway } from './support/gateway.js';
import { play, startScene } from './support/scene.js';
import { until } from './support/until.js';

const limit = { timeout: 300_000 };

/** Makes a session ahead of its client. @param {string} admin @param {object} wish */
async function make(admin, wish, headers = {}) {
  const response = await fetch(`http://${admin}/api/v1/sessions`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ path: '/match/7', grace: '10m', ...wish }),
  });
  assert.equal(response.status, 201);
  return (await response.json()).id;
}

/** A handshake of a page of another site, which is refused. @param {string} host @param {string} path @param {string} origin */
function refuse(host, path, origin) {
  const headers = {
    Upgrade: 'websocket',
    Connection: 'Upgrade',
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
    Origin: origin,
  };
  return new Promise((done, fail) => {
    get(`http://${host}${path}`, { headers }, (response) => {
      assert.equal(response.statusCode, 403);
      response.resume().on('end', done);
    }).on('error', fail);
  });
}

/** Holds the next overview up, once it was answered, until it may come. @param {import('playwright-core').Page} page */
async function holdOverview(page) {
  /** @type {import('playwright-core').Route} */
  const route = await new Promise((asked) => void page.route('**/api/v1/overview?*', asked, { times: 1 }));
  const response = await route.fetch();
  return { answer: () => route.fulfill({ response }) };
}

describe('the dashboard', { concurrency: 3 }, () => {
  const browser = suiteBrowser();

  /** A gateway with a game server. */
  const startReal = async (t, ...flags) => startGateway(t, '--upstream', (await startGame(t)).url, ...flags);

  const openBoard = async (t, gateway, hash) => Dashboard.open(await browser.page(t), gateway.admin, hash);

  /** A gateway with a game server, and its dashboard. */
  async function open(t) {
    const gateway = await startReal(t);
    return { gateway, board: await openBoard(t, gateway) };
  }

  /** A dashboard with made-up sessions. */
  async function faked(t, total, options) {
    const gateway = await startGateway(t, '--demo');
    const page = await browser.page(t, { viewport: { width: 1440, height: 900 } });
    const answers = await fake(page, total, options);
    return { page, answers, board: await Dashboard.open(page, gateway.admin) };
  }

  test('follows an upgrade, and keeps its charts over that', limit, async (t) => {
    const { page, answers, board } = await faked(t, 20);
    await board.says('matching', /^20$/);
    assert.equal(await board.part('upgrade').count(), 0, 'there was none');
    answers.upgrade = { ...NO_UPGRADE, state: 'running', from: 'v0.9.0', to: 'v0.10.0' };
    await board.says('upgrade', /^Upgrading to v0\.10\.0, sessions continue$/);
    answers.frozen = true;
    await page.locator('.sign', { hasText: /^upgrading$/ }).waitFor();
    answers.frozen = false;
    answers.since = new Date().toISOString();
    answers.upgrade = { ...answers.upgrade, state: 'ok', sessions: { moved: 19, pumped: 0, kept: 1 }, freeze_ms: 84.2 };
    await board.says(
      'upgrade',
      /^Upgraded from v0\.9\.0 to v0\.10\.0: 19 sessions handed over in 84 ms, 1 followed later$/,
    );
    await until('it asks again', () => answers.asked !== '');
    const seen = answers.count;
    await until('it asks once more', () => answers.count > seen);
    assert.notEqual(answers.asked, '', 'the samples of the process before are still there');
    answers.upgrade = NO_UPGRADE;
    answers.since = new Date().toISOString(); // a restart
    await until('the samples are dropped', () => answers.asked === '');
    assert.equal(await board.part('upgrade').count(), 0);
  });

  test('shows the nodes of a cluster, and that one does not answer', limit, async (t) => {
    const { answers, board } = await faked(t, 6000);
    await board.says('matching', /^6,000$/);
    assert.equal(await board.part('nodes').count(), 0, 'it is no cluster');
    const node = (/** @type {string} */ name, /** @type {object} */ more) => ({
      name,
      id: '0a1b2c3d',
      state: 'up',
      version: 'v0.9.0',
      address: '10.0.0.1:8082',
      sessions: 2000,
      heartbeat_age_ms: 300,
      forwards_in: 5,
      forwards_out: 7,
      ...more,
    });
    answers.cluster = {
      nodes: [
        node('n1', { heartbeat_age_ms: 0 }),
        node('n2', { id: '1a1b2c3d', state: 'draining' }),
        node('n3', { id: '2a1b2c3d' }),
      ],
      nodes_missing: ['n3'],
      engine: { up: true, servers: 3, replicas: 3, rtt_ms: 0.4, since: new Date().toISOString() },
    };
    await board.says('nodes', /n1\s+up v0\.9\.0, 2,000 sessions, forwards 5 in, 7 out, this one/);
    await board.says('nodes', /n2\s+draining v0\.9\.0, .* heard 0\.3 s ago/);
    await board.says('nodes', /n3\s+up, does not answer v0\.9\.0/);
    await board.says('matching', /^6,000, the first 5,000 can be scrolled to$/);
    await board.accessible('with a strip of nodes');
    await board.fits();
    await board.says('nodes', /NATS\s+up 3 servers, 3 replicas, 0\.4 ms, for/);
    answers.cluster = { nodes: [node('n1', {})], nodes_missing: [], engine: { ...answers.cluster.engine, up: false } };
    await board.says('nodes', /NATS\s+lost for .*: players notice nothing/);
    answers.cluster = { nodes: [node('n1', {})], nodes_missing: [] };
    await board.part('nodes').waitFor({ state: 'detached' });
    board.clean();
  });

  test('marks durable sessions, and says how many are exposed', limit, async (t) => {
    const gateway = await startGateway(t, '--demo');
    const page = await browser.page(t);
    const answers = await fake(page, 100);
    const [covered, exposed, moved] = answers.sessions;
    Object.assign(answers.sessions[7], { node: 'n1', durable: 'exposed', moved: 'handoff' }); // detached, the longest
    Object.assign(covered, { node: 'n1', durable: 'covered' });
    Object.assign(exposed, { node: 'n1', durable: 'exposed' });
    Object.assign(moved, { node: 'n2', durable: 'covered', epoch: 1, moved: 'failover' });
    const board = await Dashboard.open(page, gateway.admin);
    await board.says('matching', /^100$/);
    const read = await Promise.all(
      [0, 1, 2, 3].map((i) => board.rows().nth(i).locator('.durability').allTextContents()),
    );
    assert.deepEqual(read, [['◈durable'], ['△exposed'], ['◈durable', '↪moved'], []]);
    assert.equal(
      await board.rows().nth(2).locator('[data-sign=moved]').getAttribute('title'),
      'Moved: its node was lost',
    );
    for (const width of [1440, 1280, 1024, 900, 800, 390]) {
      await page.setViewportSize({ width, height: 900 });
      assert.deepEqual(await cutSigns(page), [], `${width} wide`);
    }
    assert.equal(await board.part('nodes').count(), 0, 'all are covered');
    answers.durable = { covered: 60, exposed: 3 };
    await board.says('exposed', /3 durable sessions\s+exposed lost if their nodes are/);
    await board.accessible('with exposed sessions');
    await board.fits();
    answers.durable = { covered: 63, exposed: 0 };
    await board.part('exposed').waitFor({ state: 'detached' });
    await page.route(`**/api/v1/sessions/${moved.id}`, (route) => route.fulfill({ json: moved }));
    await page.route(`**/api/v1/sessions/${moved.id}/history`, (route) =>
      route.fulfill({ json: { events: [moment('session.created'), moment('session.moved')], left_out: 0 } }),
    );
    await page.evaluate((id) => void (location.hash = `#/session/${id}`), moved.id);
    await board.says('past', /Moved to another node, its node was lost/);
    await board.says('session', /◈durable.*↪moved.*Noden2moved here: its node was lost/s);
    await board.accessible('a session that has moved');
    await board.fits();
    board.clean();
  });

  test('shows a session by keys alone, cuts it and ends it, each after a question', limit, async (t) => {
    const scene = await startScene(t, '--grace', '60s');
    const { player, seat } = await play(await browser.page(t), scene);
    const board = await openBoard(t, scene.gateway);
    await board.rows().first().waitFor();
    await board.part('grid').focus();
    await board.page.keyboard.press('ArrowDown');
    assert.equal(await board.part('grid').getAttribute('aria-activedescendant'), 'row-0');
    await board.page.keyboard.press('Enter');
    await board.says('past', /Created, from 127\.0\.0\.1/);
    assert.equal(
      await board.page.evaluate(() => document.activeElement?.id),
      'session-title',
      'the heading has the focus',
    );

    await board.part('disconnect').click();
    await board.page.keyboard.press('Escape');
    await board.part('dialog').waitFor({ state: 'detached' });
    assert.equal(await player.resumes(), 0, 'what was not confirmed was not done');
    await board.part('disconnect').click();
    await board.part('confirm').click();
    await player.until('the player is back', ({ count }) => count.resume === 1);
    await board.says(
      'past',
      /Resumed from 127\.0\.0\.1, away for .* since the last sign of life, .*Client disconnected, .*silent for/s,
    );
    await board.says('feed', /detached.*silent for [\d.]+ m?s/s);
    await board.says('session', /can resume, last heard \d\.\d s ago/);
    const [age, created] = await board.page.evaluate(() => [
      /since (\S{8})/.exec(document.querySelector('.facts')?.textContent ?? '')?.[1],
      document.querySelector('.past li:last-child time')?.textContent,
    ]);
    assert.equal(age, created, 'the age counts from the line in the history');
    await board.says('said', /^Disconnected\.$/);

    await board.part('set-grace').click();
    await board.part('grace-input').fill('soon');
    await board.part('confirm').click();
    await board.says('dialog', /Enter a duration such as 45s/);
    await board.part('grace-input').fill('5m');
    await board.part('confirm').click();
    await board.says('session', /Grace period5 m/);
    await board.says('past', /Grace period changed from 1 m to 5 m.*Resumed/s);

    await board.part('end').click();
    await board.part('reason').fill('kicked by the test');
    await board.part('confirm').click();
    await player.until('the player gets the close', ({ count }) => count.close === 1);
    await board.says('past', /Ended over the control API, by loopback, “kicked by the test”/);
    await until('the game server gets the close', () => seat.ended);
    assert.deepEqual(seat.ended, { code: 1000, reason: 'kicked by the test' });
    assert.ok(await board.part('end').isDisabled(), 'there is nothing left to end');

    await board.page.reload(); // it knows what happened before, and which gateway it is
    await board.says('past', /Ended over .*“kicked by the test”.*Grace period changed from 1 m to 5 m/s);
    await board.says('feed', /ended.*“kicked by the test”/s);
    const address = scene.gateway.host.replaceAll('.', '\\.');
    await board.says('which', new RegExp(`${hostname()} .*clients at ${address}, id [0-9a-f]{8}`, 's'));
    assert.ok((await board.page.title()).includes(hostname()), await board.page.title());
    board.clean();
  });

  test('opens a session by a click anywhere in its row or event, and lets text be selected', limit, async (t) => {
    const gateway = await startReal(t);
    const id = await make(gateway.admin, { player: 'ann', group: 'match-7' });
    const board = await openBoard(t, gateway);
    const { page } = board;
    const at = () => page.evaluate(() => location.hash);
    const leave = async () => {
      await page.evaluate(() => void (location.hash = ''));
      await board.rows().first().waitFor();
    };
    await board.rows().first().waitFor();
    for (const part of ['id', 'player', 'in', 'age']) {
      await board.rows().first().locator(`.${part}`).click();
      await until(`the click on ${part} opens it`, async () => (await at()) === `#/session/${id}`);
      await leave();
    }
    await board.part('feed').locator('.what b').first().click();
    await until('the click on the event opens it', async () => (await at()) === `#/session/${id}`);
    await leave();

    for (const place of [board.rows().first().locator('.group'), board.part('feed').locator('.what b').first()]) {
      const box = await place.boundingBox();
      assert.ok(box);
      const middle = box.y + box.height / 2;
      await page.mouse.move(box.x + 1, middle);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width - 1, middle, { steps: 5 });
      await page.mouse.up();
      assert.notEqual(await page.evaluate(() => String(document.getSelection())), '', 'text is selected');
      assert.equal(await at(), '', 'and nothing opened');
    }
    await board
      .rows()
      .first()
      .locator('.player')
      .click({ modifiers: ['Shift'] });
    assert.equal(await at(), '', 'a click with a key is the browser’s');
    board.clean();
  });

  test('says why a list is empty, and shows sessions that have ended', limit, async (t) => {
    const { gateway, board } = await open(t);
    await board.says('rows', /^No sessions yet\. They appear here as clients connect\.$/);
    await board.says('feed-seen', /^0 so far$/);
    const empty = board.page.locator('.feed .empty');
    assert.match((await empty.textContent()) ?? '', /^No events yet/);
    for (const player of ['ann', 'bob']) {
      const id = await make(gateway.admin, { player });
      await fetch(`http://${gateway.admin}/api/v1/sessions/${id}`, { method: 'DELETE' });
    }
    await board.says('feed-seen', /^4 so far$/);
    await until('the list is not empty', async () => (await empty.count()) === 0);
    await board.page.getByRole('button', { name: 'Clear' }).click();
    assert.match((await empty.textContent()) ?? '', /^Cleared\./, 'something has happened');
    await board.says('rows', /^No sessions now\. 2 sessions ended since the process started\. Show recent ones$/);
    await board.page.setViewportSize({ width: 360, height: 800 });
    await board.fits();
    await board.accessible('no session is left');
    await board.page.getByRole('button', { name: 'Show recent ones' }).click();
    await until('both are shown', async () => (await board.rows().count()) === 2);
    board.clean();
  });

  test('finds, narrows and puts in order', limit, async (t) => {
    const gateway = await startReal(t);
    for (const [i, name] of ['Zoe', 'ann', 'Bob'].entries())
      await make(gateway.admin, { player: name, group: `match-${i}`, grace: `${10 - i}m` });
    const board = await openBoard(t, gateway);
    const shown = async (/** @type {string} */ want) =>
      until(
        `the rows are ${want}`,
        async () => (await board.page.locator('.row .player').allTextContents()).join(' ') === want,
      );
    await shown('Zoe ann Bob');
    await board.page.getByRole('button', { name: 'Grace left' }).click();
    await shown('Bob ann Zoe');
    assert.equal(
      await board.page.getByRole('columnheader', { name: 'Grace left' }).getAttribute('aria-sort'),
      'ascending',
    );
    await board.page.getByRole('button', { name: 'Grace left' }).click();
    await shown('Zoe ann Bob');
    const age = board.page.getByRole('columnheader', { name: 'Age' });
    await board.page.getByRole('button', { name: 'Age' }).click();
    await shown('Bob ann Zoe');
    assert.equal(await age.getAttribute('aria-sort'), 'ascending', 'the youngest come first');
    await board.page.getByRole('button', { name: 'Age' }).click();
    await shown('Zoe ann Bob');
    assert.equal(await age.getAttribute('aria-sort'), 'descending');
    await board.part('search').fill('MATCH-1');
    await shown('ann');
    await board.says('matching', /^1 found$/);
    await board.part('search').fill('');
    await board.part('state').selectOption('attached');
    await until('none is attached', async () =>
      /No matching sessions/.test((await board.part('rows').textContent()) ?? ''),
    );
    board.clean();
  });

  test('shows hostile names as they are, and runs nothing of them', limit, async (t) => {
    const gateway = await startReal(t);
    const hostile = [
      '<img src=x onerror="window.pwned=1">',
      '"><script>window.pwned=2</script>',
      '</title><svg onload=window.pwned=3>',
      'javascript:window.pwned=4',
      '${window.pwned=5}',
      '{{constructor.constructor("window.pwned=6")()}}',
    ];
    const board = await openBoard(t, gateway);
    await board.says('feed-seen', /so far/); // the stream is open
    for (const name of hostile)
      await make(gateway.admin, {
        player: name,
        group: name,
        path: `/x/${encodeURIComponent(name.replaceAll('/', ''))}?${encodeURIComponent(name)}`,
      });
    await until('all are shown', async () => (await board.rows().count()) === hostile.length);
    assert.deepEqual(await board.page.locator('.row .player').allTextContents(), hostile);
    await until('the feed names them', async () => (await board.part('feed').locator('li').count()) === hostile.length);
    await board.rows().first().click();
    await board.says('session', /<img src=x onerror="window\.pwned=1">/);
    await board.part('end').click();
    await board.part('reason').fill('<img src=x onerror="window.pwned=7">');
    await board.part('confirm').click();
    await board.says('past', /“<img src=x onerror="window\.pwned=7">”/);
    await board.page.evaluate(() => void (location.hash = '#/session/<img src=x onerror="window.pwned=8">'));
    await board.says('session', /No such session/);
    await board.page.evaluate(() => void (location.hash = '#/session/%'));
    await board.says('session', /%.*No such session/);
    assert.equal(await board.page.evaluate('window.pwned'), undefined);
    assert.equal(await board.page.locator('img, script:not([src]), svg[onload]').count(), 0);
    assert.deepEqual(board.strangers, []);
    assert.deepEqual(
      board.complaints.filter((line) => !line.includes('404')),
      [],
      'the unknown session alone is complained of',
    );
  });

  test('asks for a token, keeps it in the tab alone, and is read-only for a viewer', limit, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), 'reseat-tokens-'));
    t.after(() => rm(dir, { recursive: true }));
    const [admin, viewer] = ['admin-0123456789abcdef', 'viewer-0123456789abcdef'];
    await writeFile(join(dir, 'admins'), admin);
    await writeFile(join(dir, 'viewers'), viewer);
    const files = ['--admin-token-file', join(dir, 'admins'), '--viewer-token-file', join(dir, 'viewers')];
    const gateway = await startReal(t, ...files);
    const id = await make(gateway.admin, { player: 'ann' }, { Authorization: `Bearer ${admin}` });
    const board = await openBoard(t, gateway, `#/session/${id}`);
    const enter = async (/** @type {string} */ token) => {
      await board.part('token').fill(token);
      await board.part('unlock').click();
    };
    await board.part('token').waitFor();
    assert.equal(await board.page.locator('.row, .tile').count(), 0, 'nothing is shown before');
    await enter('wrong-0123456789abcdef');
    await until('it is refused', async () =>
      /Unknown token/.test((await board.page.locator('#login-refusal').textContent()) ?? ''),
    );
    await enter(viewer);
    await board.says('past', /Pre-created/);
    await board.part('read-only').waitFor();
    assert.equal(await board.part('drain').count(), 0);
    assert.equal(await board.page.locator('.actions').count(), 0, 'a viewer is offered nothing that would be refused');
    await board.page.reload();
    await board.says('past', /Pre-created/);
    const kept = await board.page.evaluate(() =>
      [JSON.stringify(localStorage), document.cookie, location.href, document.documentElement.outerHTML].join(' '),
    );
    assert.ok(!kept.includes(viewer), "the token is in the tab's storage alone");
    const held = await holdOverview(board.page); // an answer to the viewer is under way
    await board.page.getByRole('button', { name: 'Forget token' }).click();
    await board.part('token').waitFor();
    await held.answer();
    await board.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))); // the page has taken it
    assert.equal(await board.page.locator('.panel.session, .tile').count(), 0, 'a late answer shows nothing any more');
    await enter(admin);
    await board.part('end').waitFor();
    assert.equal(await board.part('read-only').count(), 0);
    assert.deepEqual(board.strangers, []);
    assert.ok(
      board.asked.every((path) => !path.includes(admin) && !path.includes(viewer)),
      'no address holds a token',
    );
  });

  test('says who was refused, why, and which flag would change it', limit, async (t) => {
    const { gateway, board } = await open(t);
    await board.says('refused', /^No client was refused\.$/);
    const hostile = 'https://"><img src=x onerror="window.pwned=1">.example';
    for (const origin of [hostile, 'https://elsewhere.example'])
      await refuse(gateway.host, '/match/7?secret=1', origin);
    await board.says('refused-total', /^2$/);
    await board.says('rows', /No sessions yet, but 2 refused: see why/);
    const newest = board.part('refused').locator('li').first();
    assert.match(
      (await newest.textContent()) ?? '',
      /403 origin: https:\/\/elsewhere\.example \/match\/7 from 127\.0\.0\.1\s*--origin if the page is yours, add --origin https:\/\/elsewhere\.example;/,
    );
    assert.match((await board.part('refused').locator('li').nth(1).textContent()) ?? '', /<img src=x onerror=/);
    assert.equal(await board.page.evaluate('window.pwned'), undefined);
    await board.page.getByRole('link', { name: 'see why' }).click();
    await until('the list is seen', () =>
      board.page.evaluate(() => {
        const { top } = /** @type {Element} */ (document.getElementById('refused')).getBoundingClientRect();
        return top < innerHeight - 60;
      }),
    );
    assert.equal(await board.rows().count(), 0, 'the list of sessions is still there');
    await board.page.reload();
    await board.says('refused-total', /^2$/);
    await board.says('routes', /\/\*ws:\/\/127\.0\.0\.1:/);
    const figures = await board.part('routes').locator('td').allTextContents();
    assert.deepEqual(figures, ['0', '0', '0', '0', '0', '2', '0'], 'two were refused');
    board.clean();
  });

  test('drains, and cancels that, each after a question', limit, async (t) => {
    const gateway = await startReal(t, '--drain', '10m');
    await make(gateway.admin, { player: 'ann' });
    const board = await openBoard(t, gateway);
    const ready = async () => (await fetch(`http://${gateway.admin}/readyz`)).status;
    await board.part('drain').click();
    await board.says('dialog', /After 10 m .*whatever\s+is\s+left\s+of\s+the\s+1\s+session\s+ends\s+with\s+4503/s);
    await board.page.keyboard.press('Escape');
    await board.part('dialog').waitFor({ state: 'detached' });
    assert.equal(await ready(), 200, 'what was not confirmed was not done');
    await board.part('drain').click();
    await board.part('confirm').click();
    await board.says('draining', /^draining: no new sessions, the 1 session left closes in (9 m|10 m)/);
    assert.equal(
      await board.part('draining').locator('[role="status"]').textContent(),
      'draining: no new sessions',
      'the time that runs on is not read aloud',
    );
    assert.equal(await ready(), 503);
    await board.accessible('draining');
    await board.part('drain').click();
    await board.says('dialog', /Cancel the drain\?/);
    await board.accessible('the question');
    await board.part('confirm').click();
    await board.part('draining').waitFor({ state: 'detached' });
    assert.equal(await ready(), 200);
    await make(gateway.admin, { player: 'bob' });
    board.clean();
  });

  test('10,000 sessions are a few rows in the page and one bounded request at a time', limit, async (t) => {
    const { page, answers, board } = await faked(t, 10_000, { ms: 150 });
    let underway = 0;
    let atOnce = 0;
    const overview = (request) => request.url().includes('/overview');
    page.on('request', (request) => overview(request) && (atOnce = Math.max(atOnce, ++underway)));
    for (const end of /** @type {const} */ (['requestfinished', 'requestfailed']))
      page.on(end, (request) => overview(request) && (underway = Math.max(0, underway - 1)));
    await board.says('matching', /^10,000$/);
    assert.equal(await board.part('grid').getAttribute('aria-rowcount'), '10001');
    let most = 0;
    for (let top = 0; top <= 400_000; top += 40_000) {
      await board.part('rows').evaluate((body, to) => void (body.scrollTop = to), top);
      const place = Math.min(top / 40, 9980);
      await until(
        `row ${place} has its session`,
        async () => (await page.locator(`#row-${place}.row:not(.waiting)`).count()) === 1,
        { also: () => page.locator('.row').first().getAttribute('id') },
      );
      most = Math.max(most, await page.locator('.row').count());
    }
    assert.ok(most <= 60, `${most} rows in the page`);
    assert.equal(atOnce, 1, 'requests at a time');
    await board.part('grid').focus();
    await page.keyboard.press('Home');
    await page.keyboard.press('End');
    await until(
      'the last row is active and seen',
      async () => (await page.locator('#row-9999[data-active="true"]:not(.waiting)').count()) === 1,
    );
    assert.equal(await page.locator('#row-9999 .player').textContent(), 'player-9999');
    await board.part('search').fill('player-77');
    await board.says('matching', /^111 found$/);
    assert.ok(
      answers.rows <= 200 && answers.bytes < 250_000,
      `${answers.rows} rows and ${answers.bytes} bytes in one answer`,
    );
    const kinds = new Set(board.asked.map((path) => path.split('?')[0]).filter((path) => path.startsWith('/api/')));
    assert.deepEqual([...kinds].sort(), ['/api/v1/events', '/api/v1/overview'], 'no row asks for itself');
    board.clean();
  });

  test('says when what it shows is old, and goes on by itself', limit, async (t) => {
    const { board } = await open(t);
    const { page } = board;
    await page.locator('.sign.good').waitFor();
    await page.route('**/api/v1/overview?*', (route) => route.abort());
    await page.getByText(/not up to date/).waitFor();
    assert.equal(
      await page.locator('.top [role="status"]').textContent(),
      'not up to date',
      'the time that runs on is not read aloud',
    );
    await page.reload();
    await page.getByText('The gateway is unreachable. Retrying.').waitFor();
    await page.unroute('**/api/v1/overview?*');
    await page.locator('.sign.good').waitFor();
    assert.deepEqual(board.strangers, []);
  });
});

/** The signs of sessions that do not fit into their cell. @param {import('playwright-core').Page} page */
function cutSigns(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll('.row .in .durability .mark')]
      .filter((mark) => {
        const cell = /** @type {Element} */ (mark.closest('.in')).getBoundingClientRect();
        return mark.getBoundingClientRect().right > cell.right + 0.5;
      })
      .map((mark) => mark.textContent),
  );
}

/** An entry of a history. @param {string} type */
function moment(type) {
  return {
    time: new Date().toISOString(),
    type,
    peer: '203.0.113.7',
    was: '',
    reason: type === 'session.moved' ? 'failover' : '',
    detail: '',
    by: '',
    silent: '',
    away: '',
    replay: 0,
    lost: 0,
    times: 1,
  };
}
