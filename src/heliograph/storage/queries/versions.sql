-- What templates said before.

-- name: keep_versions
-- What is not content may change within a version; who made it and when stays.
INSERT INTO template_version (template, version, body, person, at)
SELECT template, version, body, person, at
FROM rows(:versions, template text, version bigint, body text, person text, at bigint) AS r
WHERE true
ON CONFLICT (template, version) DO UPDATE SET body = excluded.body;

-- name: list_versions
SELECT v.version, coalesce(p.email, v.person), v.at
FROM template_version v LEFT JOIN person p ON p.id = v.person
WHERE v.template = :template AND v.version < :before
ORDER BY v.version DESC LIMIT :limit;

-- name: find_version
SELECT body FROM template_version WHERE template = :template AND version = :version;
