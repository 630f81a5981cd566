-- Earlier versions of templates.

-- name: save_versions
-- Insert or update template versions.
-- Fields other than the content may change within a version; author and time stay the same from publication on.
INSERT INTO template_version (template, version, body, person, at)
SELECT template, version, body, person, at
FROM rows(:versions, template text, version bigint, body text, person text, at bigint) AS r
WHERE true
ON CONFLICT (template, version) DO UPDATE SET body = excluded.body,
    (person, at) = (
        SELECT CASE WHEN s.status = 'draft' THEN excluded.person ELSE template_version.person END,
               CASE WHEN s.status = 'draft' THEN excluded.at ELSE template_version.at END
        FROM (SELECT json_extract(template_version.body, '$.status') AS status) AS s    --sqlite
        FROM (SELECT template_version.body::json ->> 'status' AS status) AS s           --postgres
    );

-- name: delete_versions
-- Delete the versions of a template up to a version.
DELETE FROM template_version WHERE template = :template AND version <= :version;

-- name: list_versions
-- Return a page of versions with author and time, newest first.
SELECT v.version, coalesce(p.email, v.person), v.at
FROM template_version v LEFT JOIN person p ON p.id = v.person
WHERE v.template = :template AND v.version < :before
ORDER BY v.version DESC LIMIT :limit;

-- name: find_version
-- Return the body of a template version.
SELECT body FROM template_version WHERE template = :template AND version = :version;
