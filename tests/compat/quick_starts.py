"""Examples from each service's own quick start, with only key and address replaced.

`KEY`, `BASE`, `ACCOUNT`, `HOST` and `PORT` mark where readers insert their own.
"""

RESEND_PYTHON = """
import resend

resend.api_key = "KEY"

params: resend.Emails.SendParams = {
    "from": "Acme <onboarding@resend.dev>",
    "to": ["delivered@resend.dev"],
    "subject": "hello world",
    "html": "<strong>it works!</strong>",
}

email = resend.Emails.send(params)
print(email)
"""

RESEND_NODE = """
import { Resend } from 'resend';

const resend = new Resend('KEY');

(async function () {
  const { data, error } = await resend.emails.send({
    from: 'Acme <onboarding@resend.dev>',
    to: ['delivered@resend.dev'],
    subject: 'Hello World',
    html: '<strong>It works!</strong>',
  });

  if (error) {
    return console.error({ error });
  }

  console.log({ data });
})();
"""

TWILIO_PYTHON = """
from twilio.rest import Client

account_sid = "ACCOUNT"
auth_token = "KEY"
client = Client(account_sid, auth_token)
client.api.base_url = "BASE"

message = client.messages.create(
    body="Join Earth's mightiest heroes. Like Kevin Bacon.",
    from_="+15017122661",
    to="+15558675310",
)

print(message.body)
"""

TWILIO_NODE = """
const twilio = require("twilio");

const accountSid = "ACCOUNT";
const authToken = "KEY";
const client = twilio(accountSid, authToken);
client.api.baseUrl = "BASE";

async function createMessage() {
  const message = await client.messages.create({
    body: "This is the ship that made the Kessel Run in fourteen parsecs?",
    from: "+15017122661",
    to: "+15558675310",
  });

  console.log(message.body);
}

createMessage();
"""

VERIFY_PYTHON = """
from twilio.rest import Client

account_sid = "ACCOUNT"
auth_token = "KEY"
client = Client(account_sid, auth_token)
client.verify.base_url = "BASE"

service = client.verify.v2.services.create(friendly_name="My First Verify Service")

verification = client.verify.v2.services(service.sid).verifications.create(to="+15017122661", channel="sms")

print(verification.status)

verification_check = client.verify.v2.services(service.sid).verification_checks.create(
    to="+15017122661", code="123456"
)

print(verification_check.status)
"""

VERIFY_NODE = """
const twilio = require("twilio");

const accountSid = "ACCOUNT";
const authToken = "KEY";
const client = twilio(accountSid, authToken);
client.verify.baseUrl = "BASE";

async function verify() {
  const service = await client.verify.v2.services.create({ friendlyName: "My First Verify Service" });

  const verification = await client.verify.v2.services(service.sid).verifications.create({
    channel: "sms",
    to: "+15017122662",
  });

  console.log(verification.status);

  const verificationCheck = await client.verify.v2.services(service.sid).verificationChecks.create({
    code: "123456",
    to: "+15017122662",
  });

  console.log(verificationCheck.status);
}

verify();
"""

POSTMARK_CURL = """
curl "BASE/email" \\
  -X POST \\
  -H "Accept: application/json" \\
  -H "Content-Type: application/json" \\
  -H "X-Postmark-Server-Token: KEY" \\
  -d '{
  "From": "sender@example.com",
  "To": "receiver@example.com",
  "Subject": "Postmark test",
  "TextBody": "Hello dear Postmark user.",
  "HtmlBody": "<html><body><strong>Hello</strong> dear Postmark user.</body></html>",
  "MessageStream": "outbound"
}'
"""

POSTMARK_NODE = """
var postmark = require("postmark");

var client = new postmark.ServerClient("KEY", { useHttps: false, requestHost: "BASE".replace("http://", "") });

client.sendEmail({
  "From": "sender@example.com",
  "To": "recipient@example.com",
  "Subject": "Test",
  "TextBody": "Hello from Postmark!"
}).then(console.log);
"""

POSTMARKER = """
from postmarker.core import PostmarkClient
postmark = PostmarkClient(server_token='KEY', root_api_url='ROOT')
print(postmark.emails.send(
    From='sender@example.com',
    To='receiver@example.com',
    Subject='Postmark test',
    HtmlBody='<html><body><strong>Hello</strong> dear Postmark user.</body></html>'
))
"""

POSTAL_CURL = """
curl -X POST "BASE/api/v1/send/message" \\
  -H "X-Server-API-Key: KEY" \\
  -H "Content-Type: application/json" \\
  -d '{
  "to": ["sarah@example.com"],
  "from": "test@test.postal.io",
  "subject": "Hi there!",
  "plain_body": "Hello world!",
  "html_body": "<p>Hello world!</p>"
}'
"""

NODEMAILER = """
const nodemailer = require("nodemailer");

const transporter = nodemailer.createTransport({
  host: "HOST",
  port: PORT,
  secure: false,
  auth: {
    user: "USER",
    pass: "KEY",
  },
});

(async () => {
  const info = await transporter.sendMail({
    from: '"Maddison Foo Koch" <maddison53@ethereal.email>',
    to: "bar@example.com, baz@example.com",
    subject: "Hello ✔",
    text: "Hello world?",
    html: "<b>Hello world?</b>",
  });

  console.log("Message sent:", info.messageId);
})();
"""

SMTPLIB = """
import smtplib
from email.message import EmailMessage

msg = EmailMessage()
msg.set_content("The contents.")

msg['Subject'] = 'The contents of textfile'
msg['From'] = "me@example.org"
msg['To'] = "you@example.net"

s = smtplib.SMTP('HOST', PORT)
s.login("USER", "KEY")
s.send_message(msg)
s.quit()
print("sent")
"""

DJANGO = """
from django.conf import settings
settings.configure(EMAIL_HOST="HOST", EMAIL_PORT=PORT, EMAIL_HOST_USER="USER", EMAIL_HOST_PASSWORD="KEY")

from django.core.mail import send_mail

print(send_mail(
    "Subject here",
    "Here is the message.",
    "from@example.com",
    ["to@example.com"],
    fail_silently=False,
))
"""

PHPMAILER = """<?php
use PHPMailer\\PHPMailer\\PHPMailer;
use PHPMailer\\PHPMailer\\Exception;

foreach (['Exception', 'SMTP', 'PHPMailer'] as $name) require "/usr/share/php/libphp-phpmailer/src/$name.php";

$mail = new PHPMailer(true);

try {
    $mail->isSMTP();
    $mail->Host       = 'HOST';
    $mail->SMTPAuth   = true;
    $mail->Username   = 'USER';
    $mail->Password   = 'KEY';
    $mail->Port       = PORT;

    $mail->setFrom('from@example.com', 'Mailer');
    $mail->addAddress('joe@example.net', 'Joe User');
    $mail->addAddress('ellen@example.com');
    $mail->addReplyTo('info@example.com', 'Information');
    $mail->addCC('cc@example.com');
    $mail->addBCC('bcc@example.com');

    $mail->isHTML(true);
    $mail->Subject = 'Here is the subject';
    $mail->Body    = 'This is the HTML message body <b>in bold!</b>';
    $mail->AltBody = 'This is the body in plain text for non-HTML mail clients';

    $mail->send();
    echo 'Message has been sent';
} catch (Exception $e) {
    echo "Message could not be sent. Mailer Error: {$mail->ErrorInfo}";
}
"""
