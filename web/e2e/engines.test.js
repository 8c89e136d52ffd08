// The client's own tests in every engine, and the demo where short.test.js has it not. What takes longer is in engines/.
import { demoTests } from './support/cuts.js';
import { inEngines } from './support/engines.js';
import { unitTests } from './support/unit.js';

inEngines("the client's own tests", unitTests);

inEngines('the demo', demoTests, ['WebKit']);
