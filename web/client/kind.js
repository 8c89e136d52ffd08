// What a connection was opened for.

export const FIRST = 'first';
export const RESUME = 'resume';
export const PLAIN = 'plain';
