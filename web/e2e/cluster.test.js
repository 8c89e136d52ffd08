// The demo in a cluster: which node it is on, and how it carries on at another.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { suiteBrowser } from './support/browser.js';
import { openCluster } from './support/cluster.js';
import { DemoPage, wantKept } from './support/demo.js';
import { startGateway } from './support/gateway.js';

const limit = { timeout: 300_000 };

describe('the demo in a cluster', () => {
  const browser = suiteBrowser();

  /** The page of the first node. */
  const open = (t) => openCluster(t, browser);

  /** Presses the button of a node, and waits until both sides play there. */
  async function carryOn({ demo, list }, name, resumes) {
    await list.filter({ hasText: `Carry on at ${name}` }).click();
    await demo.until(
      `both sides play at ${name}`,
      ({ proof, plain }) => proof.resumes === resumes && proof.state === 'playing' && plain.state === 'playing',
      30_000,
    );
  }

  test('carries on at other nodes in the same seat, without a loss', limit, async (t) => {
    const scene = await open(t);
    const { cluster, demo } = scene;
    const { proof: before } = await demo.score(1);
    await carryOn(scene, 'n2', 1);
    await demo.says('reseat-where', /^The seat is at n1, the connection goes through n2\.$/);
    await demo.says('plain-where', /^Seat and connection are at n2\.$/);
    await demo.says('nodes-notice', /^The connections go to n2 from now on\.$/);
    const { proof, plain } = await demo.report();
    wantKept(before, proof);
    assert.equal(plain.seatsLost, 1, 'a plain WebSocket begins anew');
    const { nodes } = await cluster.api('/nodes');
    assert.deepEqual(nodes.map(({ name, forwards_in: goIn, forwards_out: out }) => [name, goIn, out]).slice(0, 1), [
      ['n1', 1, 0],
    ]);
    const { node, state } = await cluster.api(`/sessions/${proof.session}`);
    assert.deepEqual([node, state], ['n1', 'attached']);
    await carryOn(scene, 'n1', 2);
    await demo.says('reseat-where', /^Seat and connection are at n1\.$/);
    const { proof: after } = await demo.report();
    wantKept(before, after);
    assert.deepEqual(demo.complaints, []);
  });

  for (const how of ['reset', 'silence'])
    test(`the cut "${how}" works through another node`, limit, async (t) => {
      const scene = await open(t);
      const { demo } = scene;
      const { proof: before } = await demo.score(1);
      await carryOn(scene, 'n2', 1);
      await demo.page.getByLabel('WebSocket', { exact: true }).uncheck();
      await demo.part(`cut-${how}`).click();
      const { proof } = await demo.until(
        'it is back',
        ({ proof: now }) => now.resumes === 2 && now.state === 'playing',
      );
      wantKept(before, proof);
      await demo.says('cut-notice', /^$/);
      await demo.says('reseat-where', /the connection goes through n2\.$/);
      assert.deepEqual(demo.complaints, []);
    });

  test(
    'survives a node that only its connection goes through, and loses the seat with the node that has it',
    limit,
    async (t) => {
      const scene = await open(t);
      const { cluster, demo, list } = scene;
      const { proof: before } = await demo.score(1);
      await carryOn(scene, 'n2', 1);
      cluster.kill('n2');
      await demo.until('it is back', ({ proof }) => proof.resumes === 2 && proof.state === 'playing', 30_000);
      await demo.says('nodes-notice', /^A node does not answer\. The connections go to n3 now/);
      await demo.says('reseat-where', /^The seat is at n1, the connection goes through n3\.$/);
      const { proof } = await demo.report();
      wantKept(before, proof);
      cluster.kill('n1'); // the page's own, too
      await demo.until('it has a new seat', ({ proof: now }) => now.seatsLost === 1 && now.state === 'playing', 30_000);
      await demo.says('reseat-where', /^Seat and connection are at n3\.$/);
      await demo.says('reseat-status', /its node was lost/);
      await list.filter({ hasText: 'n1: has ended' }).waitFor();
      assert.ok(await list.filter({ hasText: 'n1: has ended' }).isDisabled());
      await demo.part('cut-reset').click(); // at n3, which did not serve the page
      await demo.until('it is back', ({ proof: now }) => now.resumes === 3 && now.state === 'playing');
      assert.deepEqual(
        demo.complaints.filter(
          (text) => !/ERR_(CONNECTION_(REFUSED|RESET)|SOCKET_NOT_CONNECTED|EMPTY_RESPONSE)/.test(text),
        ),
        [],
        'the browser complains of the nodes that are gone alone',
      );
    },
  );

  test('does not show without one', limit, async (t) => {
    const { host } = await startGateway(t, '--demo');
    const demo = await DemoPage.open(await browser.page(t), host);
    await demo.score(1);
    for (const id of ['nodes', 'reseat-where', 'plain-where'])
      assert.ok(await demo.part(id).isHidden(), `${id} is hidden`);
    assert.equal((await fetch(`http://${host}/demo/nodes`)).status, 204);
    assert.deepEqual(demo.complaints, []);
  });
});
