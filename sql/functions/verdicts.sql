-- The rules of reconciliation, once. docs/reconciliation.md says them in words.
--
-- Each stage is a table made from the ones before it. What is between two `-- stage:` lines is plain SQL over bare names,
-- so that another engine can run the very same text (reconciliation/engines.py). They begin from:
--   seen_orders     the columns of reconcilable_orders
--   seen_charges    the columns of provider_charges; with every charge all orders it could belong to, and the reverse
--   seen_refunds, seen_disputes   those of seen_charges
--   seen_workflows  order_id, current_state, deadline_at, held, updated_at
--   terms           one row: livemode, tolerance_minor, now_at, lapse_before, judge_charges_before, judge_refunds_before
CREATE OR REPLACE FUNCTION makegood.judge_seen() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  CREATE TEMPORARY TABLE links ON COMMIT DROP AS
-- stage: links
SELECT DISTINCT q.charge_id, q.order_id
  FROM (SELECT c.id AS charge_id, o.order_id FROM seen_charges c JOIN seen_orders o ON o.payment_ref = c.payment_ref
        UNION ALL
        SELECT c.id AS charge_id, o.order_id FROM seen_charges c JOIN seen_orders o ON o.payment_ref = c.id
        UNION ALL
        SELECT c.id AS charge_id, o.order_id FROM seen_charges c JOIN seen_orders o ON o.order_id = c.order_ref) q
-- stage end
  ;
  CREATE TEMPORARY TABLE charge_facts ON COMMIT DROP AS
-- stage: charge_facts
SELECT c.id AS charge_id, c.payment_ref, c.order_ref, c.customer_ref, c.status, c.amount_minor, c.captured_minor,
       c.currency, c.capture_before, c.captures_open, c.created_at, l.first_order,
       CASE WHEN c.livemode <> t.livemode THEN 'other_mode'
            WHEN l.first_order IS NULL THEN 'orphan'
            WHEN l.first_order <> l.last_order THEN 'ambiguous'
            ELSE 'linked' END AS link,
       COALESCE(r.live_minor, 0) AS refunded_minor,
       COALESCE(r.failed_minor, 0) AS refund_failed_minor,
       COALESCE(d.open_minor, 0) AS disputed_minor,
       COALESCE(d.lost_minor, 0) AS lost_minor,
       -- What is with us and nobody else claims: the bank has taken what is lost, and may take what is disputed.
       c.captured_minor - COALESCE(r.live_minor, 0) - COALESCE(d.open_minor, 0) - COALESCE(d.lost_minor, 0) AS left_minor,
       GREATEST(c.created_at, r.youngest_at, d.youngest_at) AS youngest_at
  FROM seen_charges c
 CROSS JOIN terms t
  LEFT JOIN (
        SELECT k.charge_id, MIN(k.order_id) AS first_order, MAX(k.order_id) AS last_order
          FROM links k GROUP BY k.charge_id) l ON l.charge_id = c.id
  LEFT JOIN (
        SELECT s.charge_id,
               CAST(SUM(CASE WHEN s.status IN ('succeeded', 'pending') THEN s.amount_minor ELSE 0 END) AS BIGINT) AS live_minor,
               MAX(CASE WHEN s.status IN ('succeeded', 'pending') THEN 0 ELSE s.amount_minor END) AS failed_minor,
               MAX(s.created_at) AS youngest_at
          FROM seen_refunds s GROUP BY s.charge_id) r ON r.charge_id = c.id
  LEFT JOIN (
        SELECT s.charge_id,
               CAST(SUM(CASE WHEN s.status = 'open' THEN s.amount_minor ELSE 0 END) AS BIGINT) AS open_minor,
               CAST(SUM(CASE WHEN s.status = 'lost' THEN s.amount_minor ELSE 0 END) AS BIGINT) AS lost_minor,
               MAX(s.created_at) AS youngest_at
          FROM seen_disputes s GROUP BY s.charge_id) d ON d.charge_id = c.id
-- stage end
  ;
  CREATE TEMPORARY TABLE order_facts ON COMMIT DROP AS
-- stage: order_facts
-- A view may leave these null: nothing is known, so nothing was booked.
SELECT o.order_id, COALESCE(o.status, '') AS status, COALESCE(o.amount_minor, 0) AS amount_minor, o.currency, o.payment_ref,
       o.customer_ref, COALESCE(o.refunded_minor, 0) AS ours_minor, COALESCE(o.dispute_known, FALSE) AS dispute_known,
       COALESCE(o.written_off_minor, 0) AS written_off_minor, COALESCE(o.partial_shipment, FALSE) AS partial_shipment,
       CASE WHEN w.order_id IS NULL THEN 'none'
            WHEN w.current_state = 'completed' THEN 'completed'
            WHEN w.current_state IN ('failed', 'compensated') THEN 'undone'
            WHEN w.current_state = 'compensating' THEN 'compensating'
            WHEN w.held THEN 'held'
            WHEN w.deadline_at <= t.now_at THEN 'late'
            ELSE 'active' END AS workflow,
       w.deadline_at,
       COALESCE(f.charges, 0) AS charges,
       COALESCE(f.counted, 0) AS counted,
       COALESCE(f.ambiguous, 0) AS ambiguous,
       COALESCE(f.failed, 0) AS failed,
       COALESCE(f.pending, 0) AS pending,
       COALESCE(f.lapsed, 0) AS lapsed,
       COALESCE(f.authorized_minor, 0) AS authorized_minor,
       COALESCE(f.captures_open, 0) AS captures_open,
       f.capture_before,
       COALESCE(f.cap_minor, 0) AS cap_minor,
       COALESCE(f.ref_minor, 0) AS ref_minor,
       COALESCE(f.all_ref_minor, 0) AS all_ref_minor,
       COALESCE(f.lost_minor, 0) AS lost_minor,
       COALESCE(f.disputed_minor, 0) AS disputed_minor,
       COALESCE(f.both_minor, 0) AS both_minor,
       COALESCE(f.over_minor, 0) AS over_minor,
       COALESCE(f.refund_failed_minor, 0) AS refund_failed_minor,
       COALESCE(f.equal, 0) AS equal,
       COALESCE(f.foreign_currency, 0) AS foreign_currency,
       f.charged_currency,
       COALESCE(f.loose, 0) AS loose,
       f.first_charge, f.extra_charge,
       COALESCE(f.extra_minor, 0) AS extra_minor,
       GREATEST(o.created_at, o.changed_at, f.youngest_at, w.updated_at) AS youngest_at
  FROM seen_orders o
 CROSS JOIN terms t
  LEFT JOIN seen_workflows w ON w.order_id = o.order_id
  LEFT JOIN (
        SELECT k.order_id,
               COUNT(*) AS charges,
               SUM(k.ambiguous) AS ambiguous,
               SUM(k.counts) AS counted,
               SUM(CASE WHEN k.standing = 'failed' THEN 1 ELSE 0 END) AS failed,
               SUM(CASE WHEN k.standing = 'pending' THEN 1 ELSE 0 END) AS pending,
               SUM(CASE WHEN k.standing = 'lapsed' THEN 1 ELSE 0 END) AS lapsed,
               CAST(SUM(k.authorized_minor) AS BIGINT) AS authorized_minor,
               SUM(CASE WHEN k.captures_open THEN k.counts ELSE 0 END) AS captures_open,
               MIN(CASE WHEN k.standing = 'authorized' OR (k.standing <> '' AND k.captures_open) THEN k.capture_before END)
                 AS capture_before,
               CAST(SUM(k.counts * k.captured_minor) AS BIGINT) AS cap_minor,
               CAST(SUM(k.counts * k.refunded_minor) AS BIGINT) AS ref_minor,
               CAST(SUM(k.succeeded * k.refunded_minor) AS BIGINT) AS all_ref_minor,
               CAST(SUM(k.counts * k.lost_minor) AS BIGINT) AS lost_minor,
               CAST(SUM(k.counts * k.disputed_minor) AS BIGINT) AS disputed_minor,
               MAX(k.counts * LEAST(k.refunded_minor, k.disputed_minor + k.lost_minor)) AS both_minor,
               -- By charge: what another one still holds does not make up for what left this one twice.
               CAST(SUM(k.counts * GREATEST(k.refunded_minor + k.lost_minor - k.captured_minor, 0)) AS BIGINT) AS over_minor,
               MAX(k.counts * k.refund_failed_minor) AS refund_failed_minor,
               SUM(CASE WHEN k.captured_minor = k.order_minor THEN k.counts ELSE 0 END) AS equal,
               SUM(CASE WHEN k.foreign_currency IS NOT NULL THEN k.counts ELSE 0 END) AS foreign_currency,
               MIN(CASE WHEN k.succeeded = 1 THEN k.foreign_currency END) AS charged_currency,
               SUM(k.loose) AS loose,
               MIN(CASE WHEN k.place = 1 THEN k.charge_id END) AS first_charge,
               -- Of what was taken beyond the first: the latest that is still to be given back.
               MAX(CASE WHEN k.extra_place = 1 THEN k.charge_id END) AS extra_charge,
               MAX(CASE WHEN k.extra_place = 1 THEN k.left_minor ELSE 0 END) AS extra_minor,
               MAX(k.youngest_at) AS youngest_at
          FROM (SELECT b.*,
                       -- What was given back, and not also claimed by the bank or given back twice: then it is over.
                       CASE WHEN b.succeeded = 1 AND NOT (b.place > 1 AND b.refunded_minor = b.captured_minor
                                                          AND b.left_minor = 0
                                                          AND GREATEST(b.kept_minor, b.first_minor) >= b.order_minor)
                             -- In other money it never was this order's payment.
                             AND NOT (b.foreign_currency IS NOT NULL AND b.refunded_minor = b.captured_minor AND b.left_minor = 0)
                            THEN 1 ELSE 0 END AS counts,
                       CASE WHEN b.succeeded = 1 AND b.place > 1 AND b.left_minor > 0
                            THEN ROW_NUMBER() OVER (PARTITION BY b.order_id
                                   ORDER BY CASE WHEN b.succeeded = 1 AND b.place > 1 AND b.left_minor > 0
                                                 THEN 0 ELSE 1 END, b.created_at DESC, b.charge_id DESC)
                            ELSE 0 END AS extra_place
                  FROM (SELECT h.*,
                               ROW_NUMBER() OVER (PARTITION BY h.order_id ORDER BY h.rank, h.created_at, h.charge_id) AS place,
                               FIRST_VALUE(h.succeeded * h.captured_minor)
                                 OVER (PARTITION BY h.order_id ORDER BY h.rank, h.created_at, h.charge_id) AS first_minor,
                               CAST(SUM(CASE WHEN h.captured_minor > h.refunded_minor THEN h.succeeded * h.captured_minor ELSE 0 END)
                                 OVER (PARTITION BY h.order_id) AS BIGINT) AS kept_minor
                          FROM (SELECT o.order_id, COALESCE(o.amount_minor, 0) AS order_minor, c.charge_id, c.captured_minor, c.capture_before,
                                       c.captures_open, c.created_at, c.refunded_minor, c.refund_failed_minor, c.disputed_minor,
                                       c.lost_minor, c.left_minor, c.youngest_at,
                                       -- What is ambiguous counts for nothing but being that.
                                       CASE WHEN c.link = 'linked' THEN c.status ELSE '' END AS standing,
                                       CASE WHEN c.link = 'ambiguous' THEN 1 ELSE 0 END AS ambiguous,
                                       CASE WHEN c.link = 'linked' AND c.status = 'succeeded' THEN 1 ELSE 0 END AS succeeded,
                                       CASE WHEN c.link = 'linked' AND c.status = 'authorized' THEN c.amount_minor ELSE 0 END
                                         AS authorized_minor,
                                       CASE WHEN c.currency <> COALESCE(o.currency, '') THEN c.currency END AS foreign_currency,
                                       CASE WHEN c.order_ref <> o.order_id OR c.payment_ref <> COALESCE(o.payment_ref, '')
                                            THEN 1 ELSE 0 END AS loose,
                                       -- The one that pays the order comes first.
                                       CASE WHEN c.link <> 'linked' OR c.status <> 'succeeded' THEN 4
                                            WHEN c.captured_minor <= c.refunded_minor THEN 3
                                            WHEN c.left_minor <= 0 THEN 2
                                            WHEN c.captured_minor = COALESCE(o.amount_minor, 0) THEN 0
                                            ELSE 1 END AS rank
                                  FROM charge_facts c
                                  JOIN links i ON i.charge_id = c.charge_id
                                  JOIN seen_orders o ON o.order_id = i.order_id
                                 WHERE c.link IN ('linked', 'ambiguous')) h) b) k
         GROUP BY k.order_id) f ON f.order_id = o.order_id
-- stage end
  ;
  -- A table of its own, so that no engine works out a rule twice.
  CREATE TEMPORARY TABLE order_breaks ON COMMIT DROP AS
-- stage: order_breaks
SELECT n.*,
       -- Given back, it is nobody's loss; our books have to say so, and nothing may be shipped for it.
       n.foreign_currency > 0
         OR (n.charged_currency IS NOT NULL AND n.cap_minor = 0
             AND (n.workflow IN ('active', 'late', 'held')
                  OR (n.paid AND n.ours_minor = 0 AND n.written_off_minor = 0))) AS d16,
       n.over_minor > 0 AS d22,
       n.both_minor > 0 AND NOT (n.disputed_minor = 0 AND n.lost_minor <= n.written_off_minor
                                 AND n.ours_minor IN (n.ref_minor, n.all_ref_minor, n.own_ref_minor)) AS d26,
       n.disputed_minor > 0 AND NOT n.dispute_known AS d24,
       n.lost_minor > n.written_off_minor AS d25,
       n.counted >= 2 AND n.left_minor > n.amount_minor AND n.equal >= 1 AS d08,
       -- Only the lesser is multiplied, and only where a thousand times as much is still a whole number of 64 bits.
       CASE WHEN (n.too_much OR n.too_little) AND LEAST(n.cap_minor, n.amount_minor) BETWEEN 1 AND 9223372036854775
            THEN GREATEST(n.cap_minor, n.amount_minor) IN (LEAST(n.cap_minor, n.amount_minor) * 10,
                   LEAST(n.cap_minor, n.amount_minor) * 100, LEAST(n.cap_minor, n.amount_minor) * 1000)
            ELSE FALSE END AS d17,
       n.counted >= 2 AND n.too_much AND n.equal = 0 AS d31,
       n.counted = 1 AND n.too_much AS d10,
       n.cap_minor > 0 AND n.net_minor = 0 AND n.workflow IN ('active', 'late', 'held') AS d23,
       n.refund_failed_minor > n.ref_minor AS d21,
       n.left_minor > 0 AND n.workflow = 'compensating' AS d04,
       n.ours_minor > 0 AND n.all_ref_minor = 0 AND n.cap_minor > 0 AS d19,
       n.ours_minor > 0 AND n.all_ref_minor > 0 AND n.cap_minor > 0
         AND NOT n.ours_minor IN (n.ref_minor, n.all_ref_minor, n.own_ref_minor) AS d20,
       n.left_minor > 0 AND (n.workflow = 'undone' OR n.status = 'cancelled') AS d03,
       n.own_ref_minor > 0 AND n.ours_minor = 0 AND n.workflow <> 'compensating' AS d18,
       n.paid AND n.nothing_yet AND n.authorized_minor = 0 AND n.lapsed > 0 AS d14,
       n.nothing_yet AND n.authorized_minor > 0 AND n.capture_before <= n.lapse_before AS d13,
       n.paid AND n.nothing_yet AND n.authorized_minor = 0 AND n.lapsed = 0 AND n.failed > 0 AS d07,
       n.paid AND n.charges = 0 AND n.amount_minor > 0 AS d05,
       (n.left_minor > n.amount_minor AND NOT n.too_much)
         OR (n.still_paid AND n.cap_minor < n.amount_minor AND NOT n.too_little) AS d15,
       n.cap_minor > 0 AND n.cap_minor < n.amount_minor AND n.captures_open > 0
         AND n.capture_before > n.now_at AS d12,
       n.too_little AS d11,
       n.cap_minor > 0 AND n.status = 'pending'
         AND (n.workflow = 'completed' OR (n.workflow = 'none' AND n.net_minor > 0)) AS d06,
       n.cap_minor > 0 AND n.workflow IN ('late', 'held') AS d02,
       n.cap_minor = 0 AND (n.authorized_minor > 0 OR n.pending > 0) AS waits
  FROM (SELECT m.*,
               -- An excess that was given back is none any more, and what was given back in full lacks nothing.
               m.left_minor - m.tolerance_minor > m.amount_minor AS too_much,
               m.still_paid AND m.cap_minor < m.amount_minor - m.tolerance_minor AS too_little
          FROM (SELECT f.*, f.cap_minor - f.ref_minor AS net_minor,
                       f.cap_minor - f.ref_minor - f.lost_minor - f.disputed_minor AS left_minor,
                       -- What gave back only what was taken too much is no refund of the order.
                       GREATEST(f.ref_minor - GREATEST(f.cap_minor - f.amount_minor, 0), 0) AS own_ref_minor,
                       f.status IN ('paid', 'fulfilled') AS paid,
                       f.cap_minor > f.ref_minor AND f.status <> 'cancelled' AS still_paid,
                       f.cap_minor = 0 AND f.pending = 0 AS nothing_yet,
                       t.tolerance_minor, t.now_at, t.lapse_before
                  FROM order_facts f CROSS JOIN terms t) m) n
-- stage end
  ;
  CREATE TEMPORARY TABLE verdicts ON COMMIT DROP AS
-- stage: verdicts
SELECT v.unit, v.order_id, v.charge_id, v.customer_ref, v.currency,
       CASE WHEN v.class IN ('MATCHED', 'PENDING') THEN v.class
            WHEN v.youngest_at < CASE WHEN v.class IN ('D18', 'D19', 'D20', 'D21') THEN t.judge_refunds_before
                                      ELSE t.judge_charges_before END THEN v.class
            ELSE 'PENDING' END AS class,
       v.class AS would_be,
       v.at_risk_minor, v.act_minor, v.also, v.remedy, v.youngest_at, v.capture_before, v.company
  FROM (
    -- A unit has at most 300 characters; of a longer id the beginning and its digest say which one it is.
    SELECT 'order:' || CASE WHEN LENGTH(x.order_id) <= 294 THEN x.order_id
                            ELSE SUBSTR(x.order_id, 1, 250) || ' ' || MD5(x.order_id) END AS unit, x.order_id,
           CASE WHEN x.class = 'D08' THEN x.extra_charge ELSE x.first_charge END AS charge_id,
           x.customer_ref,
           CASE WHEN x.class = 'D16' THEN x.charged_currency ELSE x.currency END AS currency, x.class, x.youngest_at, x.capture_before,
           CASE x.class
             WHEN 'D16' THEN x.cap_minor
             WHEN 'D22' THEN x.over_minor
             WHEN 'D26' THEN x.both_minor
             WHEN 'D24' THEN x.disputed_minor
             WHEN 'D25' THEN x.lost_minor - x.written_off_minor
             WHEN 'D08' THEN x.left_minor - x.amount_minor
             WHEN 'D17' THEN GREATEST(x.left_minor - x.amount_minor, x.amount_minor - x.cap_minor)
             WHEN 'D31' THEN x.left_minor
             WHEN 'D10' THEN x.left_minor - x.amount_minor
             WHEN 'D23' THEN x.ref_minor
             WHEN 'D21' THEN x.refund_failed_minor
             WHEN 'D04' THEN x.left_minor
             WHEN 'D19' THEN x.ours_minor
             WHEN 'D20' THEN LEAST(ABS(x.ours_minor - x.ref_minor), ABS(x.ours_minor - x.all_ref_minor),
                                   ABS(x.ours_minor - x.own_ref_minor))
             WHEN 'D03' THEN x.left_minor
             WHEN 'D18' THEN x.own_ref_minor
             WHEN 'D13' THEN x.authorized_minor
             WHEN 'D15' THEN GREATEST(x.left_minor - x.amount_minor, x.amount_minor - x.cap_minor)
             WHEN 'D11' THEN x.amount_minor - x.cap_minor
             WHEN 'D06' THEN x.cap_minor
             WHEN 'D02' THEN x.cap_minor
             WHEN 'D14' THEN x.amount_minor
             WHEN 'D07' THEN x.amount_minor
             WHEN 'D05' THEN x.amount_minor
             ELSE 0 END AS at_risk_minor,
           CASE x.class
             WHEN 'D08' THEN LEAST(x.extra_minor, x.left_minor - x.amount_minor)
             WHEN 'D03' THEN x.left_minor
             WHEN 'D19' THEN LEAST(x.ours_minor, x.cap_minor)
             ELSE 0 END AS act_minor,
           CASE
             -- Where the bank has a say in it, a refund may give the money twice.
             WHEN x.class IN ('D08', 'D19', 'D03') AND x.lost_minor + x.disputed_minor > 0 THEN 'human'
             ELSE CASE x.class
               WHEN 'D24' THEN 'record' WHEN 'D25' THEN 'record' WHEN 'D18' THEN 'record' WHEN 'D15' THEN 'record'
               WHEN 'D08' THEN 'refund' WHEN 'D23' THEN 'stop' WHEN 'D04' THEN 'wait' WHEN 'D19' THEN 'retry_refund'
               WHEN 'D13' THEN CASE WHEN x.workflow IN ('active', 'late') THEN 'resume' ELSE 'human' END
               -- What was shipped, or whose workflow is a person's, is not given back by a job; what is under way may yet ship.
               WHEN 'D03' THEN CASE WHEN x.status = 'fulfilled' OR x.partial_shipment OR x.workflow IN ('completed', 'held') THEN 'human'
                                    WHEN x.workflow IN ('active', 'late') THEN 'wait' ELSE 'refund' END
               -- Nothing was paid: what has not been shipped waits for a person.
               WHEN 'D07' THEN CASE WHEN x.workflow IN ('active', 'late') THEN 'stop' ELSE 'human' END
               WHEN 'D11' THEN CASE WHEN x.partial_shipment THEN 'record' ELSE 'human' END
               WHEN 'D06' THEN CASE WHEN x.workflow = 'completed' THEN 'correct' ELSE 'human' END
               WHEN 'D02' THEN CASE WHEN x.workflow = 'held' THEN 'human' ELSE 'resume' END
               ELSE 'human' END END AS remedy,
           x.also,
           CASE WHEN x.charges > 1 OR x.loose > 0 THEN 1 ELSE 0 END AS company
      FROM (
        SELECT b.*,
               CASE WHEN b.d16 THEN 'D16' WHEN b.d22 THEN 'D22' WHEN b.d26 THEN 'D26' WHEN b.d24 THEN 'D24'
                    WHEN b.d25 THEN 'D25' WHEN b.d08 THEN 'D08' WHEN b.d17 THEN 'D17' WHEN b.d31 THEN 'D31'
                    WHEN b.d10 THEN 'D10' WHEN b.d23 THEN 'D23' WHEN b.d21 THEN 'D21' WHEN b.d04 THEN 'D04'
                    WHEN b.d19 THEN 'D19' WHEN b.d20 THEN 'D20' WHEN b.d03 THEN 'D03' WHEN b.d18 THEN 'D18'
                    WHEN b.d14 THEN 'D14' WHEN b.d13 THEN 'D13' WHEN b.d07 THEN 'D07' WHEN b.d05 THEN 'D05'
                    WHEN b.d15 THEN 'D15' WHEN b.d12 THEN 'PENDING' WHEN b.d11 THEN 'D11' WHEN b.d06 THEN 'D06'
                    WHEN b.d02 THEN 'D02' WHEN b.waits THEN 'PENDING' ELSE 'MATCHED' END AS class,
               CASE WHEN b.d16 THEN 'D16 ' ELSE '' END || CASE WHEN b.d22 THEN 'D22 ' ELSE '' END
                 || CASE WHEN b.d26 THEN 'D26 ' ELSE '' END || CASE WHEN b.d24 THEN 'D24 ' ELSE '' END
                 || CASE WHEN b.d25 THEN 'D25 ' ELSE '' END || CASE WHEN b.d08 THEN 'D08 ' ELSE '' END
                 || CASE WHEN b.d17 THEN 'D17 ' ELSE '' END || CASE WHEN b.d31 THEN 'D31 ' ELSE '' END
                 || CASE WHEN b.d10 THEN 'D10 ' ELSE '' END || CASE WHEN b.d23 THEN 'D23 ' ELSE '' END
                 || CASE WHEN b.d21 THEN 'D21 ' ELSE '' END || CASE WHEN b.d04 THEN 'D04 ' ELSE '' END
                 || CASE WHEN b.d19 THEN 'D19 ' ELSE '' END || CASE WHEN b.d20 THEN 'D20 ' ELSE '' END
                 || CASE WHEN b.d03 THEN 'D03 ' ELSE '' END || CASE WHEN b.d18 THEN 'D18 ' ELSE '' END
                 || CASE WHEN b.d14 THEN 'D14 ' ELSE '' END || CASE WHEN b.d13 THEN 'D13 ' ELSE '' END
                 || CASE WHEN b.d07 THEN 'D07 ' ELSE '' END || CASE WHEN b.d05 THEN 'D05 ' ELSE '' END
                 || CASE WHEN b.d15 THEN 'D15 ' ELSE '' END || CASE WHEN b.d11 THEN 'D11 ' ELSE '' END
                 || CASE WHEN b.d06 THEN 'D06 ' ELSE '' END || CASE WHEN b.d02 THEN 'D02 ' ELSE '' END AS also
          FROM order_breaks b) x
    UNION ALL
    SELECT 'charge:' || c.charge_id, CASE WHEN c.link = 'orphan' THEN c.order_ref ELSE c.first_order END, c.charge_id,
           c.customer_ref, c.currency,
           c.class, c.youngest_at, c.capture_before,
           CASE c.class WHEN 'D22' THEN c.refunded_minor + c.lost_minor - c.captured_minor
                        WHEN 'D26' THEN LEAST(c.refunded_minor, c.disputed_minor)
                        WHEN 'D01' THEN c.captured_minor - c.refunded_minor - c.lost_minor
                        WHEN 'MATCHED' THEN 0 ELSE c.captured_minor END,
           CASE WHEN c.class = 'D01' THEN GREATEST(c.left_minor, 0) ELSE 0 END,
           CASE WHEN c.class = 'D01' AND c.order_ref IS NOT NULL AND c.disputed_minor + c.lost_minor = 0
                THEN 'refund' ELSE 'human' END,
           '', 0
      FROM (SELECT a.*,
                   CASE WHEN a.link = 'other_mode' THEN CASE WHEN a.captured_minor <= a.refunded_minor THEN 'MATCHED' ELSE 'D27' END
                        WHEN a.refunded_minor + a.lost_minor > a.captured_minor THEN 'D22'
                        WHEN a.refunded_minor > 0 AND a.disputed_minor > 0 THEN 'D26'
                        WHEN a.refunded_minor + a.lost_minor = a.captured_minor THEN 'MATCHED'
                        WHEN a.link = 'ambiguous' THEN 'D31' ELSE 'D01' END AS class
              FROM charge_facts a WHERE a.link <> 'linked') c) v
 CROSS JOIN terms t
-- stage end
  ;
END
$$;
COMMENT ON FUNCTION makegood.judge_seen() IS
  'The rules: from the seen_* tables of this transaction to the table verdicts, one row per unit.';
