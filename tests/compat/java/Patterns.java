import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** Reads lines of a pattern, a character 31 and a name; says for each whether the pattern matches the whole name. */
public final class Patterns {
    private Patterns() {
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\u001f", 2);
            try {
                System.out.println(Pattern.compile(parts[0]).matcher(parts[1]).matches());
            } catch (PatternSyntaxException error) {
                System.out.println("invalid");
            }
        }
    }
}
