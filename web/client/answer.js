// The results of a probe.
export const NO_ANSWER = 0;
export const OTHER = 1; // something other than the gateway answered
export const GATEWAY = 2;
export const FORBIDDEN = 3; // the page's Content-Security-Policy allows no such request
