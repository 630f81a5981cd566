-- What each version of a template said. The newest one is also in the setup, where sends read it.

CREATE TABLE template_version (
    template TEXT NOT NULL,                    -- tpl_…
    version  BIGINT NOT NULL,
    body     TEXT NOT NULL,                    -- JSON, as in the setup
    person   TEXT NOT NULL,                    -- usr_… or the command line: who made it
    at       BIGINT,                           -- NULL: before versions were kept
    PRIMARY KEY (template, version)
);

INSERT INTO template_version (template, version, body, person, at)
SELECT id, coalesce(json_extract(body, '$.version'), 1), body, 'command line', NULL         --sqlite
SELECT id, coalesce((body::json ->> 'version')::bigint, 1), body, 'command line', NULL      --postgres
FROM setting WHERE kind = 'template' AND body IS NOT NULL;
