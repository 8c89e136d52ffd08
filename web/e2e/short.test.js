// The demo in Chromium and in Firefox, reloaded and cut each way: the short run.
import { demoTests } from './support/cuts.js';
import { inEngines } from './support/engines.js';

inEngines('the demo', demoTests, ['Chromium', 'Firefox']);
