// The client's own tests, and the demo, in every engine. What takes longer is in engines/: make test-engines.
import { inEngines } from './support/engines.js';
import { unitTests } from './support/unit.js';

inEngines("the client's own tests", unitTests);
