// Runs in every new context before anything of a tenant does: takes away what makes code out of text, what is random
// and what tells the time. It is compiled for every evaluation, so it is short; a test lists the globals that remain.
(Native => {
for (const name of ['eval', 'Function', 'Promise', 'queueMicrotask', 'SuppressedError', 'DisposableStack', 'AsyncDisposableStack']) delete globalThis[name];
delete Math.random;
// The constructors of functions are reached from every function of their kind.
for (const sample of [() => {}, function* () {}, async () => {}, async function* () {}]) delete Object.getPrototypeOf(sample).constructor;
// Dates that are told, yes; the date of today, no.
const now = () => { throw new TypeError('the current time is not available to conditions; pass a date in') };
const Told = function Date(...parts) { return new.target && parts.length ? Reflect.construct(Native, parts, new.target) : now() };
Told.UTC = Native.UTC;
Told.parse = Native.parse;
Told.now = now;
Told.prototype = Native.prototype;
Told.prototype.constructor = globalThis.Date = Told;
})(Date)
