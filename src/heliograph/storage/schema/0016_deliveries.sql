-- What a webhook was not told yet though it was tried: a page lists it, and a replay takes it, without the rest.
CREATE INDEX delivery_failed ON delivery (webhook, event) WHERE state <> 'delivered' AND attempt > earlier;
