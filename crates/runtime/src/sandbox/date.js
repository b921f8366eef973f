// Runs before a source that names `Date`: dates that are told, yes; the date of today, no.
(Native => {
const now = () => { throw new TypeError('the current time is not available to conditions; pass a date in') };
const Told = function Date(...parts) { return new.target && parts.length ? Reflect.construct(Native, parts, new.target) : now() };
Told.UTC = Native.UTC;
Told.parse = Native.parse;
Told.now = now;
Told.prototype = Native.prototype;
Told.prototype.constructor = globalThis.Date = Told;
})(Date)
