throw new Error('left out: msgpackr does without its native part');
