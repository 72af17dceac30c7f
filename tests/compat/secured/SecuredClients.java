import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Java's clients on a secured listener: what task.py tells of. */
public final class SecuredClients {
    private static final long SECONDS_MAX = 30;
    private static final long PAUSE_MS = 100;
    private static final String SECURITY = "org.apache.kafka.common.security.";

    private final Map<String, String> task;
    private final String topic;

    private SecuredClients(Map<String, String> task) {
        this.task = task;
        this.topic = task.get("topic");
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> task = new HashMap<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            task.put(pair[0], pair[1]);
        }
        SecuredClients story = new SecuredClients(task);
        try {
            switch (task.get("story")) {
                case "work" -> story.work();
                case "list" -> story.describe();
                default -> story.stay();
            }
        } catch (ExecutionException error) {
            System.out.println("error " + error.getCause().getClass().getSimpleName());
        } catch (ApiException error) {
            System.out.println("error " + error.getClass().getSimpleName());
        }
    }

    private Properties properties(Map<String, String> more) {
        Properties properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", task.get("bootstrap"), "security.protocol", "SASL_SSL",
                "ssl.truststore.type", "PEM", "ssl.truststore.location", task.get("authority"), "sasl.mechanism",
                task.get("mechanism")));
        properties.putAll(task.get("mechanism").equals("OAUTHBEARER") ? byToken() : byPassword());
        properties.putAll(more);
        return properties;
    }

    private Map<String, String> byPassword() {
        String module = task.get("mechanism").equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        return Map.of("sasl.jaas.config", SECURITY + module + " required username=\"" + task.get("username")
                + "\" password=\"" + task.get("password") + "\" tokenauth=\"" + task.get("tokenauth") + "\";");
    }

    /** The token comes from a file, which a program beside the client renews. */
    private Map<String, String> byToken() {
        try {
            Path file = Files.createTempFile(Path.of(task.get("authority")).getParent(), "token", ".jwt");
            Files.writeString(file, task.get("password"));
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", file.toUri().toString());
            return Map.of("sasl.jaas.config", SECURITY + "oauthbearer.OAuthBearerLoginModule required;",
                    "sasl.login.callback.handler.class", SECURITY + "oauthbearer.OAuthBearerLoginCallbackHandler",
                    "sasl.oauthbearer.token.endpoint.url", file.toUri().toString());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void describe() throws Exception {
        try (Admin admin = Admin.create(properties(Map.of()))) {
            int partitions = admin.describeTopics(List.of(topic)).allTopicNames().get(SECONDS_MAX, TimeUnit.SECONDS)
                    .get(topic).partitions().size();
            System.out.println("partitions " + partitions);
        }
    }

    private KafkaProducer<String, String> producer(Map<String, String> more) {
        return new KafkaProducer<>(properties(more), new StringSerializer(), new StringSerializer());
    }

    private void send(KafkaProducer<String, String> producer, String value) throws Exception {
        producer.send(new ProducerRecord<>(topic, value)).get(SECONDS_MAX, TimeUnit.SECONDS);
    }

    private void work() throws Exception {
        describe();
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (String value : List.of("0", "1", "2")) {
                send(producer, value);
            }
        }
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", topic))) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "aborted");
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, "3");
            producer.commitTransaction();
        }
        Properties settings = properties(Map.of("group.id", topic, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "isolation.level", "read_committed"));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS_MAX);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            boolean isDone = false;
            while (!isDone && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("read " + record.value());
                    isDone |= record.value().equals("3");
                }
            }
            consumer.commitSync();
        }
        System.out.println("committed");
    }

    private void stay() throws Exception {
        int count = 0;
        long deadline = System.nanoTime() + (long) (Double.parseDouble(task.get("seconds")) * 1e9);
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            while (count == 0 || System.nanoTime() < deadline) {
                send(producer, "x");
                count++;
                Thread.sleep(PAUSE_MS);
            }
        }
        System.out.println("sent " + count);
    }
}
